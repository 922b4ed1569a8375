"""The port to the Messages API. Only this folder calls the `anthropic` SDK. The tool `memory`
implements an interface of the SDK.
"""
