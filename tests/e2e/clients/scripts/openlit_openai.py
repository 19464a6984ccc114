import openlit
from exporting import done
from openai_calls import make_calls

openlit.init(disable_metrics=True)
make_calls()
done()
