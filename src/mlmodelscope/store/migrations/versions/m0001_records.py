"""Nothing -> schema 0001: setups, records, their documents and their artifacts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "setups",
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
    op.create_table(
        "records",
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
        sqlite_with_rowid=False,
    )
    op.create_index("records_setup_id", "records", ["setup", "id"])
    op.create_table(
        "documents",
        sa.Column("id", sa.String(26), sa.ForeignKey("records.id", name="documents_id_fk"), primary_key=True),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "artifacts",
        sa.Column("record", sa.String(26), sa.ForeignKey("records.id", name="artifacts_record_fk"), primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
