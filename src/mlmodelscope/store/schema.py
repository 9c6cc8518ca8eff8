"""The tables of the evaluation database, as they are at the schema number this version writes.

What people search by are *facets*: one small table each, a row per distinct value, and the records refer to the rows.
A search first finds the rows of the facets, in Python where a version range must be understood, then the records.
"""

from __future__ import annotations

import sqlalchemy as sa

__all__ = ["FACETS", "INDEXED_FACETS", "SCHEMA", "artifacts", "documents", "metadata", "records"]

# The number of the newest migration in migrations/versions; a test compares.
SCHEMA = "0001"

metadata = sa.MetaData()


def _facet(name: str, *columns: sa.Column[str] | sa.Column[int]) -> sa.Table:
    return sa.Table(name, metadata, sa.Column("id", sa.Integer, primary_key=True), *columns)


# By the name of the column in `records` that refers to them.
FACETS: dict[str, sa.Table] = {
    "model": _facet("models", sa.Column("name", sa.Text, nullable=False), sa.Column("version", sa.Text)),
    "framework": _facet("frameworks", sa.Column("name", sa.Text, nullable=False), sa.Column("version", sa.Text)),
    "dataset": _facet("datasets", sa.Column("name", sa.Text, nullable=False), sa.Column("version", sa.Text)),
    "system": _facet(
        "systems",
        sa.Column("architecture", sa.Text, nullable=False),
        sa.Column("cpu_model", sa.Text),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    ),
    "outcome": _facet("outcomes", sa.Column("status", sa.Text, nullable=False), sa.Column("failure_code", sa.Text)),
    "scenario": _facet("scenarios", sa.Column("type", sa.Text, nullable=False), sa.Column("timed", sa.Text)),
}
# Few scenarios are ever told apart, so none of them is rare enough to be worth an index.
INDEXED_FACETS = tuple(name for name in FACETS if name != "scenario")


def _facet_index(name: str) -> sa.Index:
    # (facet, id) is the order a search walks in; the other facets are there so that it need not look at the record
    return sa.Index(f"records_{name}", name, "id", *(other for other in FACETS if other != name))


records = sa.Table(
    "records",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    *(
        sa.Column(
            name,
            sa.Integer,
            sa.ForeignKey(f"{table.name}.id", name=f"records_{name}_fk"),
            nullable=name in ("framework", "dataset", "system"),
        )
        for name, table in FACETS.items()
    ),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("samples", sa.Integer),
    sa.Column("batch_size", sa.Integer, nullable=False),
    sa.Column("threads", sa.Integer),
    sa.Column("latency_median_ns", sa.Float),
    sa.Column("throughput", sa.Float),
    sa.Column("top1", sa.Float),
    sa.Column("memory_bytes", sa.BigInteger),
    *(_facet_index(name) for name in INDEXED_FACETS),
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
