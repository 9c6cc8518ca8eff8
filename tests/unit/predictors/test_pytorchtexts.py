import json

import pytest

from mlmodelscope.predictors.pytorchtexts import is_expression, is_guard, is_operator, is_plain, is_tree

S = "Symbol('s77', positive=True, integer=True)"


@pytest.mark.parametrize(
    "text",
    [
        S,
        f"Add(FloorDiv(Add({S}, Integer(-3)), Integer(2)), Integer(1))",
        f"Max(Integer(1), TruncToInt(Mul(Float('1.5e-05', precision=53), ToFloat({S}))))",
        f"StrictGreaterThan({S}, Integer(4))",
        "OpaqueUnaryFn_sqrt(Symbol('zuf0'))",
        "BitwiseFn_bitwise_and(Symbol('u0', integer=True), Integer(3))",
        "Piecewise(ExprCondPair(Integer(1), Eq(Mod(s0, 2), 0)), ExprCondPair(Rational(1, 2), true))",
        "2*s0 + (s1 // 3)**2 - -1.5",
    ],
)
def test_what_pytorch_writes_of_sizes_is_an_expression(text):
    assert is_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "Symbol('s0').__class__",
        "s0.func",
        "(s0).func",
        "1.0.real",
        "eval('s0')",
        "exec",
        "Symbol('s0); x')",
        "Symbol('os.system')",
        'Symbol("s0")',
        "Lambda(s0, s0)",
        "lambda: s0",
        "[s0 for s0 in s1]",
        "s0 if s1 else s2",
        "s0\n+1",
        "s0 # s1",
        "f's0'",
        "max(s0, 1)",
        "math.trunc(s0)",
        "Integer(s0, _=1)",
        "S('1')",
    ],
)
def test_anything_else_is_not(text):
    assert not is_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "(L['x'].size()[0] % 2) == 0",
        "L['x'].size()[0] == 1 or not L['mask'].size()[0] == 2 and L['args'][0].stride()[1] != 1",
        "((math.trunc(1.5*torch.sym_float(1 + (((-3) + L['x'].size()[2]) // 2)))) % 3) != 0",
        "max(1, L['flat_args'][0].size()[0] // 2) <= L['y'].storage_offset() + 4",
    ],
)
def test_conditions_on_sizes_are_guards(text):
    assert is_guard(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').mkdir('x')",
        "L['x'].__class__",
        "L['x'].size().__class__",
        "L['x'].apply_(print)",
        "L['a\"'].size()[0] == 1",
        "L['x']__import__",
        "torch.load('x')",
        "torch.sym_float.__globals__",
        "math.__loader__",
        "True)\nimport os\nif (True",
        "torch._C._sym_x",
    ],
)
def test_other_python_is_no_guard(text):
    assert not is_guard(text)


@pytest.mark.parametrize(
    "text",
    [
        "torch.ops.aten.conv2d.default",
        "torch.ops.aten._softmax.default",
        "torch.ops.aten.__and__.Tensor",
        "torch.ops.higher_order.cond",
        "torch.ops.quantized_decomposed.quantize_per_tensor.default",
        "torch.ops.torchvision.nms.default",
        "_operator.floordiv",
        "math.trunc",
        "torch.sym_max",
        "torch.amp.autocast_mode._enter_autocast",
    ],
)
def test_operators_that_compute_are_known(text):
    assert is_operator(text)


@pytest.mark.parametrize(
    "text",
    [
        "torch.os.system",
        "torchx.os.system",
        "torch.load",
        "torch.hub.load",
        "torch.ops.load_library",
        "torch.ops.load_library.__call__",
        "torch.ops.import_module.f",
        "torch.ops.aten.save.default",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.__init__.__globals__",
        "torch.ops.aten.add.Tensor.x",
        "torch.ops.higher_order.call_torchbind",
        "torch.ops.own.thing.default",
        "_operator.attrgetter",
        "_operator.methodcaller",
        "math.os",
        "#own:thing",
        "os.system",
        "torch.ops.aten.add\n",
    ],
)
def test_other_functions_are_not(text):
    assert not is_operator(text)


def tree(kind, context, *children):
    return {"type": kind, "context": context, "children_spec": list(children)}


LEAF = tree(None, None)


def test_trees_of_values_are_read():
    flat = tree("builtins.tuple", "null", tree("builtins.tuple", "null", LEAF), tree("builtins.dict", '["mask"]', LEAF))
    assert is_tree(json.dumps([1, flat]), names_arguments=True)
    named = tree("builtins.dict", '["top-1 (all)", 3]', LEAF, tree("collections.namedtuple", "own.Pair", LEAF, LEAF))
    assert is_tree(json.dumps([1, named]), names_arguments=False)
    assert not is_tree(json.dumps([1, named]), names_arguments=True)


@pytest.mark.parametrize(
    "odd",
    [
        tree("collections.defaultdict", {"default_factory_module": "os"}),
        tree("builtins.dict", json.dumps([{"__enum__": True, "fqn": "os:x", "name": "y"}]), LEAF),
        tree("builtins.tuple", "null", tree("builtins.dict", '[["a", {"__enum__": 1}]]', LEAF)),
    ],
)
def test_trees_that_import_are_not(odd):
    assert not is_tree(json.dumps([1, odd]), names_arguments=False)


def test_names_of_weights_are_plain_and_what_could_end_a_text_is_not():
    assert is_plain("layers.0.a-b/c:d@1")
    assert not any(is_plain(f"a{character}") for character in "\"'\\\n()[]{};#=")


def test_a_long_text_is_looked_through_once():
    assert is_expression(" + ".join(["s0"] * 100_000))
    assert not is_expression("(" * 100_000 + "x")
