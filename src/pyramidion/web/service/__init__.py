"""The service: streams of a data directory over HTTP.

service     streams, tokens, the signing key: what one process serves
streams     one stream: its store, the queue before it, its timer
warming     kernels are loaded before anybody is answered
access      tokens and roles; everything is denied unless a role says otherwise
commits     observations of many senders in one durable commit
routing     routes that cannot be added without saying who may call them
row_bodies  rows in, as JSON, Arrow or CSV by content type
shapes      what bodies and answers look like
metrics     numbers for Prometheus
app         the routes, put together
server      the process: address, certificates, graceful stop

What an edge has too, such as limits, logs and the one shape of errors, is in `pyramidion.web`.
"""
