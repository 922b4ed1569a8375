"""Model providers: the Anthropic SDK's client, and the offline model."""
