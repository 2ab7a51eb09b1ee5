"""What answers over HTTP has in common, be it the service or an edge.

accepting   connections are accepted as far as there is room
room        how many connections there may be, and which one makes room for a new one
descriptors file descriptors: how many the stores leave for connections
connections connections that nobody can hold for ever
gate        what every request passes: bounds of its fields, headers, metrics, the log
limits      how much is taken; beyond that it is refused
bodies      bodies in and answers out, as JSON or Arrow by content type
arrow_bodies  Arrow from strangers: refused before it costs more than its bytes
patience    how long a body is waited for
refusals    the one shape of errors
shapes      what bodies and answers look like; openapi, page: the document of them
metrics     numbers of requests for Prometheus; logs: JSON lines on stderr
server      the process: a stop that finishes what was taken
"""
