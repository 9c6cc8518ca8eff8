"""Turns stored records into files that another machine can take in, verify and repeat."""

from mlmodelscope.exchange.file import FILE_FORMAT, RecordFile, format_record_file, parse_record_file
from mlmodelscope.exchange.records import export_record, import_record

__all__ = [
    "FILE_FORMAT",
    "RecordFile",
    "export_record",
    "format_record_file",
    "import_record",
    "parse_record_file",
]
