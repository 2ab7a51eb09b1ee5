"""Raw history that the machine which wrote it cannot read.

vault         START HERE: the vault of one store
sealing       acknowledged batches into files, in a thread of its own
files         sealed files as the catalogue knows them
drafts        a file while it is written, up to its envelope
backlog       sealed files on their way to the place
places        where they lie: a directory, or what fsspec reaches
surroundings  what a vault needs of its store
verifying     whether they are there, whole
owing         which batches must be in them
adopting      files that another copy of the store sealed
custody       pairs of keys: the custodian's, a broker's, an engineer's
envelope      what is known of a sealed file, and its key, sealed to the custodian
parquet       rows as an encrypted Parquet file, and back
documents     requests, grants and revocations: signed, carried between people
stream        granted rows on their way, sealed to the engineer
broker        the process that opens what was granted; broker_http, its address
brokering     a broker for the store in a directory, and how it is found
reader        what an engineer does with a grant
forgetting    files rewritten without one person's rows, under a grant to erase
"""
