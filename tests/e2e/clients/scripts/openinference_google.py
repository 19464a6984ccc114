from exporting import SESSION, done, provider
from google_calls import make_calls
from openinference.instrumentation import using_session
from openinference.instrumentation.google_genai import GoogleGenAIInstrumentor

GoogleGenAIInstrumentor().instrument(tracer_provider=provider)
with using_session(SESSION):
    make_calls()
done()
