"""A checkout with specifications of NNAPI, made for tests, with a generator of our own."""

from __future__ import annotations

from pathlib import Path

GENERATOR = '''
"""Generator with the interface that rkcosim.apis.nnapi.specs uses."""

class FileNames:
    specFiles, specNames, exampleFiles, fileIndex = [], [], [], 0

    @staticmethod
    def NextFile():
        FileNames.fileIndex += 1
        Example.examples = []
        return True

class Type:
    def __init__(self, kind, dimensions, scale, zero):
        self.type, self.dimensions, self.scale, self.zeroPoint = kind, dimensions, scale, zero
        self.extraParams = None

class Operand:
    def __init__(self, name, lifetime, kind, dimensions=(), value=None, scale=0, zero=0):
        self.name, self.lifetime, self.value = name, lifetime, value
        self.type = Type(kind, list(dimensions), scale, zero)

class Operation:
    def __init__(self, optype, ins, outs):
        self.optype, self.ins, self.outs = optype, ins, outs

class Model:
    def __init__(self, operands, operations, relaxed=False):
        self.operands, self.operations, self.isRelaxed = operands, operations, relaxed
        for index, operand in enumerate(operands):
            operand.model_index = index

    def GetInputs(self):
        return [o for o in self.operands if o.lifetime == "SUBGRAPH_INPUT"]

    def GetOutputs(self):
        return [o for o in self.operands if o.lifetime == "SUBGRAPH_OUTPUT"]

    def GetIgnoredOutputs(self):
        return []

    def GetReferencedModels(self):
        return []

class Example:
    examples = []

    def __init__(self, name, model, fails=False):
        self.testName, self.model, self.expectFailure = name, model, fails
        self.expectedMultinomialDistributionTolerance = 0
        Example.examples.append(self)

    @staticmethod
    def DumpAllExamples(DumpExample, example_fd):
        for example in Example.examples:
            DumpExample(example, example_fd)

def GetExecScope():
    return dict(Example=Example, Model=Model, Operand=Operand, Operation=Operation)
'''

SPECS = {
    "relu": """
for name, expected in (("right", [3, 5, 9]), ("one_off", [4, 5, 9]), ("{wrong}", [{value}, 5, 9])):
    x = Operand("x", "SUBGRAPH_INPUT", "TENSOR_QUANT8_ASYMM", (1, 3), [1, 5, 9], 0.5, 3)
    y = Operand("y", "SUBGRAPH_OUTPUT", "TENSOR_QUANT8_ASYMM", (1, 3), expected, 0.5, 3)
    Example(name, Model([x, y], [Operation("RELU", [x], [y])]))
""",
    "floor": """
x = Operand("x", "SUBGRAPH_INPUT", "TENSOR_FLOAT32", (2,), [1.5, -1.5])
y = Operand("y", "SUBGRAPH_OUTPUT", "TENSOR_FLOAT32", (2,), [1.0, -2.0])
Example("floor", Model([x, y], [Operation("FLOOR", [x], [y])]))
x = Operand("x", "SUBGRAPH_INPUT", "TENSOR_FLOAT32", (2,), [1.5, -1.5])
y = Operand("y", "SUBGRAPH_OUTPUT", "TENSOR_FLOAT32", (3,), [1.0, -2.0, 0.0])
Example("other_shape", Model([x, y], [Operation("FLOOR", [x], [y])]), fails={fails})
""",
    "multinomial": """
x = Operand("x", "SUBGRAPH_INPUT", "TENSOR_FLOAT32", (1, 2), [1.5, -1.5])
n = Operand("n", "CONSTANT_COPY", "INT32", (), [4])
s = Operand("s", "CONSTANT_COPY", "TENSOR_INT32", (2,), [1, 2])
y = Operand("y", "SUBGRAPH_OUTPUT", "TENSOR_INT32", (1, 4), [0, 0, 0, 0])
Example("multinomial", Model([x, n, s, y], [Operation("RANDOM_MULTINOMIAL", [x, n, s], [y])]))
""",
}


def make_checkout(folder: Path, wrong: bool = False, fails: bool = True) -> Path:
    """Write the checkout; with `wrong` an example expects another result, `fails` whether one must fail."""
    generator = folder / "tools" / "test_generator" / "test_generator.py"
    generator.parent.mkdir(parents=True)
    generator.write_text(GENERATOR)
    specs = folder / "runtime" / "test" / "specs" / "V1_0"
    specs.mkdir(parents=True)
    for name, text in SPECS.items():
        text = text.replace("{wrong}", "wrong" if wrong else "again")
        text = text.replace("{value}", "9" if wrong else "3").replace("{fails}", str(fails))
        (specs / f"{name}.mod.py").write_text(text)
    return folder
