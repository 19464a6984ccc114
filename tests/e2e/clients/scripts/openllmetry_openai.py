from exporting import done, provider
from openai_calls import make_calls
from opentelemetry.instrumentation.openai import OpenAIInstrumentor

OpenAIInstrumentor().instrument(tracer_provider=provider)
make_calls()
done()
