from anthropic_calls import make_calls
from exporting import SESSION, done, provider
from openinference.instrumentation import using_session
from openinference.instrumentation.anthropic import AnthropicInstrumentor

AnthropicInstrumentor().instrument(tracer_provider=provider)
with using_session(SESSION):
    make_calls()
done()
