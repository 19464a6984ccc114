from anthropic_calls import make_calls
from exporting import done, provider
from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor

AnthropicInstrumentor().instrument(tracer_provider=provider)
make_calls()
done()
