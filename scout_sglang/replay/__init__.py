"""The replay lab: recorded or generated calls through SGLang's own cache, without a model."""
