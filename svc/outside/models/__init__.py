"""Model providers: one conversation in three dialects, over `svc/outside/http.py`.

`conversation.py` has the shapes, `messages.py` and `chat.py` the dialects, `sigv4.py` and `aws.py` how
requests to the cloud's model service are signed, `provider.py` who is asked and what their refusals mean.
"""
