"""model.layers: outputs of all layers in order, whatever a layer returns, before they change."""

import torch
from samebits_probe.model.layers import first_tensor, layers, recorded


class Layer(torch.nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form = form
        self.parts = torch.nn.ModuleList([torch.nn.Identity()])

    def forward(self, hidden_states):
        out = hidden_states + 1
        return {"tensor": out, "tuple": (out, None), "mapping": {"hidden": out}}[self.form]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.h = torch.nn.ModuleList([Layer(form) for form in ("tensor", "tuple", "mapping")])

    def forward(self, x):
        x = self.h[0](hidden_states=x)
        x = self.h[1](x)[0]
        x = self.h[2](x)["hidden"]
        return x.mul_(100)


def test_only_the_outer_lists_are_layers():
    assert [name for name, _ in layers(Model())] == ["h.0", "h.1", "h.2"]


def test_embeddings_and_outputs_are_copied_before_they_change():
    model = Model()
    with recorded(model) as outputs:
        model(torch.zeros(1, 2))
    assert [name for name, _ in outputs] == ["embeddings", "h.0", "h.1", "h.2"]
    assert [float(t[0, 0]) for _, t in outputs] == [0.0, 1.0, 2.0, 3.0]
    assert not any(layer._forward_hooks for layer in model.h)


def test_an_output_without_tensors_is_none():
    assert first_tensor(None) is None
    assert first_tensor((None, 3)) is None


def test_a_list_may_have_none_in_place_of_a_layer_which_keeps_its_number():
    model = Model()
    model.h.insert(1, None)  # as the conv_layers of Informer end
    assert [name for name, _ in layers(model)] == ["h.0", "h.2", "h.3"]
    with recorded(model):
        pass
    plain = [name for name, _ in layers(Model())]
    assert plain == ["h.0", "h.1", "h.2"]


class Heads(torch.nn.Module):
    """Two heads of the same weights: one module with two names, or two modules."""

    def __init__(self, *, shared):
        super().__init__()
        head = Layer("tensor")
        self.heads = torch.nn.ModuleList([head, head if shared else Layer("tensor")])
        self.same = torch.nn.ModuleList([head])

    def forward(self, x):
        for head in [*self.heads, *self.heads]:
            x = head(x)
        return x


def test_a_layer_with_two_names_is_recorded_once_for_each_call_by_its_names_in_turn():
    for shared in (True, False):
        model = Heads(shared=shared)
        for _ in range(2):
            with recorded(model) as outputs:
                model(torch.zeros(1, 2))
            names = [name for name, _ in outputs]
            assert names == ["embeddings", "heads.0", "heads.1", "heads.0", "heads.1"]
            assert [float(t[0, 0]) for _, t in outputs] == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert not any(head._forward_hooks for head in model.heads)


def test_a_layer_that_is_called_again_keeps_its_only_name():
    model = Heads(shared=False)
    with recorded(model) as outputs:
        model.heads[1](model.heads[1](torch.zeros(1, 2)))
    assert [name for name, _ in outputs] == ["embeddings", "heads.1", "heads.1"]
