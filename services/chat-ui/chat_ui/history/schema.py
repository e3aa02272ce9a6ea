"""The tables as queries name them; `migrations` makes them."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Integer, MetaData, String, Table, Text

METADATA = MetaData()

# A conversation. `owner` is the identity of its person, `settings` what Chainlit keeps with it, as JSON, `bytes` about
# what it takes with all that was said in it.
THREADS = Table(
    "threads",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("owner", String(320), nullable=False),
    Column("name", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("used_ms", BigInteger, nullable=False),
    Column("settings", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)

# A message. `output` is what the page shows, `text` what was said: the two differ in an answer's escapes and notes.
STEPS = Table(
    "steps",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("thread_id", String(36), ForeignKey("threads.id"), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("type", String(32), nullable=False),
    Column("name", Text, nullable=False),
    Column("output", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("is_error", Boolean, nullable=False),
    Column("details", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)

# A thumb, 1 up and 0 down; at most one for a message.
FEEDBACK = Table(
    "feedback",
    METADATA,
    Column("step_id", String(36), ForeignKey("steps.id"), primary_key=True),
    Column("value", Integer, nullable=False),
    Column("comment", Text),
)
