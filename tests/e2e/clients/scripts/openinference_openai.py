from exporting import SESSION, done, provider
from openai_calls import make_calls
from openinference.instrumentation import using_session
from openinference.instrumentation.openai import OpenAIInstrumentor

OpenAIInstrumentor().instrument(tracer_provider=provider)
with using_session(SESSION):
    make_calls()
done()
