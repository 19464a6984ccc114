import logfire
from exporting import SESSION, done, processors
from openai_calls import make_calls
from opentelemetry import baggage, context

logfire.configure(
    service_name="client",
    send_to_logfire=False,
    console=False,
    scrubbing=False,
    add_baggage_to_attributes=True,
    additional_span_processors=processors,
)
logfire.instrument_openai()
context.attach(baggage.set_baggage("session.id", SESSION))
make_calls()
done()
