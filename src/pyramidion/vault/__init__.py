"""Raw history that the machine which wrote it cannot read.

custody     pairs of keys: the custodian's, a broker's, an engineer's
envelope    what is known of a sealed file, and its key, sealed to the custodian
parquet     rows as an encrypted Parquet file, and back
documents   requests, grants and revocations: signed, carried between people
high_water  a clock that never goes back
stream      granted rows on their way, sealed to the engineer
broker      the process that opens what was granted; broker_http, its address
brokering   a broker for the store in a directory, and how it is found
reader      what an engineer does with a grant
forgetting  one person's rows, made blank under a grant
"""
