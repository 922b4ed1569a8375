"""The offline model: deterministic and extractive.

It answers requests of the Messages API inside the HTTP transport of the SDK. Serialization,
streaming, tool loops, errors and parsing are therefore the same as with a real model. It
states only sentences of documents, and claims of earlier results.
"""
