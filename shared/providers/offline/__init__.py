"""The offline model: deterministic and extractive.

It answers Messages API requests inside the HTTP transport of the SDK. So serialisation, streaming,
tool loops, errors and parsing are the same as with a real model. It states only sentences that
documents, tools and earlier results contain.
"""
