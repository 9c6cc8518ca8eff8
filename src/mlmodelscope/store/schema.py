"""The tables of the evaluation database, as they are at the schema number this version writes.

A *setup* is one combination of the facts that people search by; there are few of them, however many records there are.
So a search looks through the setups and then walks, per setup, its records from the newest on: `query.py`.
"""

from __future__ import annotations

import sqlalchemy as sa

__all__ = ["SCHEMA", "artifacts", "documents", "metadata", "records", "setups"]

# The number of the newest migration in migrations/versions; a test compares.
SCHEMA = "0001"

metadata = sa.MetaData()

setups = sa.Table(
    "setups",
    metadata,
    # made from the facts themselves, so that nobody has to ask the database for it
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("model_version", sa.Text, nullable=False),
    sa.Column("framework", sa.Text),
    sa.Column("framework_version", sa.Text),
    sa.Column("dataset", sa.Text),
    sa.Column("scenario", sa.Text, nullable=False),
    sa.Column("timed", sa.Text, nullable=False),
    sa.Column("architecture", sa.Text),
    sa.Column("cpu_model", sa.Text),
    sa.Column("failure_code", sa.Text),
)

records = sa.Table(
    "records",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("setup", sa.BigInteger, sa.ForeignKey("setups.id", name="records_setup_fk"), nullable=False),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("samples", sa.Integer),
    sa.Column("batch_size", sa.Integer, nullable=False),
    sa.Column("threads", sa.Integer),
    sa.Column("system_memory_bytes", sa.BigInteger),
    sa.Column("latency_median_ns", sa.Float),
    sa.Column("throughput", sa.Float),
    sa.Column("top1", sa.Float),
    sa.Column("memory_bytes", sa.BigInteger),
    sa.Index("records_setup_id", "setup", "id"),
    # rows lie in the order of their ids, which is the order of time, without an index beside the table
    sqlite_with_rowid=False,
)

# Apart from `records`, so that walking through records does not read whole documents.
documents = sa.Table(
    "documents",
    metadata,
    sa.Column("id", sa.String(26), sa.ForeignKey("records.id", name="documents_id_fk"), primary_key=True),
    sa.Column("format", sa.Integer, nullable=False),
    # canonical JSON in UTF-8, compressed by zlib: a third of the size (docs/decisions/0004-store.md)
    sa.Column("body", sa.LargeBinary, nullable=False),
)

# Which artifacts are still spoken of, without reading a document.
artifacts = sa.Table(
    "artifacts",
    metadata,
    sa.Column("record", sa.String(26), sa.ForeignKey("records.id", name="artifacts_record_fk"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
