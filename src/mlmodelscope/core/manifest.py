"""Manifests as values: a model, a framework or a data set, described by one text each.

`manifest/` makes these from text (the papers' form and the legacy form); everything after it sees only these. All
implicit steps are written out here, so two manifests that mean the same have the same canonical form and digest.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.steps import ElementType, Step
from mlmodelscope.core.value import Frozen, digest_of

__all__ = [
    "CsvLabels",
    "DatasetLayout",
    "DatasetManifest",
    "FolderPerClass",
    "FrameworkManifest",
    "FrameworkNeed",
    "ImageStrip",
    "Manifest",
    "ModelInput",
    "ModelManifest",
    "ModelOutput",
    "ModelSource",
    "NamedFiles",
    "PythonFunction",
    "Synthetic",
]

LayerName = str | int
ImagesByDevice = dict[str, str]
Attributes = dict[str, Any]


class FrameworkNeed(Frozen):
    """Which framework a model runs on. `name` as written; it matches whatever its case. `version` is a constraint.

    `options` are the framework's own (docs/guides/frameworks); a request may set them otherwise.
    """

    name: str
    version: str = "*"
    options: dict[str, Any] = Field(default_factory=dict)


class PythonFunction(Frozen):
    """Source text with one function of `(env, data)`; `name` is the one that is called."""

    name: str
    source: str


class ModelInput(Frozen):
    """One input tensor and the steps that make it from a sample. No steps: a Python function makes it."""

    type: str
    description: str = ""
    layer_name: LayerName | None = None
    element_type: ElementType = "float32"
    steps: tuple[Step, ...] = ()


class ModelOutput(Frozen):
    """One output tensor and the steps that make an answer of it. `features` are the labels, one a line."""

    type: str
    description: str = ""
    layer_name: LayerName | None = None
    element_type: ElementType = "float32"
    features: Asset | None = None
    steps: tuple[Step, ...] = ()


class ModelSource(Frozen):
    """The model's files. `weights` only where a framework keeps them apart from the graph."""

    graph: Asset
    weights: Asset | None = None


class _Described(Frozen):
    name: str
    version: str
    description: str = ""
    license: str = ""
    references: tuple[str, ...] = ()
    attributes: Attributes = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical form."""
        return digest_of(self)


class ModelManifest(_Described):
    """A model: what goes in, what is run on which framework, what comes out."""

    kind: Literal["model"] = "model"
    task: str = ""
    framework: FrameworkNeed
    container: dict[str, ImagesByDevice] = Field(default_factory=dict)
    inputs: Annotated[tuple[ModelInput, ...], Field(min_length=1)]
    outputs: Annotated[tuple[ModelOutput, ...], Field(min_length=1)]
    before_preprocess: PythonFunction | None = None
    preprocess: PythonFunction | None = None
    after_preprocess: PythonFunction | None = None
    before_postprocess: PythonFunction | None = None
    postprocess: PythonFunction | None = None
    after_postprocess: PythonFunction | None = None
    requirements: tuple[str, ...] = ()
    source: ModelSource | None = None
    modality: str = ""
    is_hidden: bool = False


class FrameworkManifest(_Described):
    """A software stack: a framework at one version and the images that hold it."""

    kind: Literal["framework"] = "framework"
    container: dict[str, ImagesByDevice] = Field(default_factory=dict)
    requirements: tuple[str, ...] = ()


class FolderPerClass(Frozen):
    """`path` holds one folder per class; the class index is the folder's place in `classes`, else in sorted order."""

    type: Literal["folder_per_class"] = "folder_per_class"
    path: Asset
    classes: Asset | None = None


class CsvLabels(Frozen):
    """`path` holds the files, `labels` a csv file that names each file and its class index."""

    type: Literal["csv"] = "csv"
    path: Asset
    labels: Asset
    file_column: str = "file"
    label_column: str = "label"
    label_offset: int = 0


class NamedFiles(Frozen):
    """Files whose names carry the class index: `pattern` is a regular expression with one group, `label`."""

    type: Literal["named_files"] = "named_files"
    files: Annotated[tuple[Asset, ...], Field(min_length=1)]
    pattern: str
    label_offset: int = 0


class ImageStrip(Frozen):
    """One image file that holds every sample as a row of pixels; `labels` is a JSON list of class indices."""

    type: Literal["image_strip"] = "image_strip"
    image: Asset
    labels: Asset
    sample_size: tuple[PositiveInt, PositiveInt]


class Synthetic(Frozen):
    """`count` images of seeded noise, made on demand; no labels unless `classes` is given (then: index mod classes)."""

    type: Literal["synthetic"] = "synthetic"
    count: PositiveInt
    size: tuple[PositiveInt, PositiveInt]
    encoding: Literal["png", "jpeg"] = "png"
    classes: PositiveInt | None = None
    seed: int = 0


DatasetLayout = Annotated[FolderPerClass | CsvLabels | NamedFiles | ImageStrip | Synthetic, Field(discriminator="type")]


class DatasetManifest(_Described):
    """Labelled samples. `labels` are the class names, one a line, in the order of the class index."""

    kind: Literal["dataset"] = "dataset"
    task: str = ""
    split: str = ""
    layout: DatasetLayout
    labels: Asset | None = None


Manifest = Annotated[ModelManifest | FrameworkManifest | DatasetManifest, Field(discriminator="kind")]
