"""The offline model: deterministic, extractive, honest. It answers Messages-API requests
inside the SDK's HTTP transport, so that serialisation, streaming, tool loops, errors and
parsing are the real ones. It states only what documents and tools say.
"""
