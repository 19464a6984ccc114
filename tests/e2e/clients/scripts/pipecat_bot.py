import asyncio

from exporting import MODELS, QUESTION, SESSION, done
from pipecat.frames.frames import EndFrame, LLMContextFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.workers.runner import WorkerRunner


async def get_weather(params, city: str):
    """The weather in a city.

    Args:
        city: Its name.
    """
    await params.result_callback("sunny")


async def main():
    model = OpenAILLMService(
        api_key="none", base_url=MODELS + "/v1", settings=OpenAILLMService.Settings(model="gpt-4o")
    )
    context = LLMContext([{"role": "user", "content": QUESTION}], tools=[get_weather])
    aggregators = LLMContextAggregatorPair(context)
    worker = PipelineWorker(
        Pipeline([aggregators.user(), model, aggregators.assistant()]),
        params=PipelineParams(enable_metrics=True, enable_usage_metrics=True),
        conversation_id=SESSION,
        enable_tracing=True,
    )
    answered = asyncio.Event()

    @aggregators.assistant().event_handler("on_assistant_turn_stopped")
    async def on_assistant_turn_stopped(aggregator, message):
        if message.content:
            answered.set()

    async def ask():
        await worker.queue_frame(LLMContextFrame(context))
        await answered.wait()
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), ask())


asyncio.run(main())
done()
