"""Nothing -> schema 0001: records, the facets to search them by, their documents and their artifacts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    for name in ("models", "frameworks", "datasets"):
        op.create_table(
            name,
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("name", sa.Text, nullable=False),
            sa.Column("version", sa.Text),
        )
    op.create_table(
        "systems",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("architecture", sa.Text, nullable=False),
        sa.Column("cpu_model", sa.Text),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "outcomes",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("failure_code", sa.Text),
    )
    op.create_table(
        "scenarios",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("timed", sa.Text),
    )
    _create_records()
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


def _create_records() -> None:
    op.create_table(
        "records",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("model", sa.Integer, sa.ForeignKey("models.id", name="records_model_fk"), nullable=False),
        sa.Column("framework", sa.Integer, sa.ForeignKey("frameworks.id", name="records_framework_fk")),
        sa.Column("dataset", sa.Integer, sa.ForeignKey("datasets.id", name="records_dataset_fk")),
        sa.Column("system", sa.Integer, sa.ForeignKey("systems.id", name="records_system_fk")),
        sa.Column("outcome", sa.Integer, sa.ForeignKey("outcomes.id", name="records_outcome_fk"), nullable=False),
        sa.Column("scenario", sa.Integer, sa.ForeignKey("scenarios.id", name="records_scenario_fk"), nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("samples", sa.Integer),
        sa.Column("batch_size", sa.Integer, nullable=False),
        sa.Column("threads", sa.Integer),
        sa.Column("latency_median_ns", sa.Float),
        sa.Column("throughput", sa.Float),
        sa.Column("top1", sa.Float),
        sa.Column("memory_bytes", sa.BigInteger),
        sqlite_with_rowid=False,
    )
    facets = ("model", "framework", "dataset", "system", "outcome", "scenario")
    for name in facets[:-1]:
        op.create_index(f"records_{name}", "records", [name, "id", *(other for other in facets if other != name)])
