"""The output layer of an ensemble: a linear layer of its own for each member.

Its products are narrow, with as many columns as there are classes. On a CPU the published layer of the
package ``tabm`` computes them several times slower than the forms here, which differ only in rounding.

B rows, M members, D width, C outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_FEW = 2  # so many outputs are added up one by one
_FEW_IN_ALL = 64  # so many outputs of all members are one product


class MembersOutput(nn.Module):
    """(B, M, D) to (B, M, C), with the published names, shapes and initial values of parameters."""

    def __init__(self, num_inputs: int, num_outputs: int, *, members: int) -> None:
        super().__init__()
        reach = num_inputs**-0.5
        self.weight = nn.Parameter(torch.empty(members, num_inputs, num_outputs).uniform_(-reach, reach))
        self.bias = nn.Parameter(torch.empty(members, num_outputs).uniform_(-reach, reach))

    def forward(self, x_BMD: Tensor) -> Tensor:
        weight_MDC, bias_MC = self.weight, self.bias
        if weight_MDC.device.type != "cpu" or type(weight_MDC) is not nn.Parameter:
            return (x_BMD.transpose(0, 1) @ weight_MDC).transpose(0, 1) + bias_MC
        if not (torch.is_grad_enabled() and x_BMD.requires_grad):
            return _narrow_product(x_BMD, weight_MDC) + bias_MC
        if torch.is_autocast_enabled("cpu"):
            return _reduced_product(x_BMD, weight_MDC) + bias_MC
        product_BMC: Tensor = _NarrowProduct.apply(x_BMD, weight_MDC)  # type: ignore[no-untyped-call]
        return product_BMC + bias_MC


def _narrow_product(x_BMD: Tensor, weight_MDC: Tensor) -> Tensor:
    return (weight_MDC.transpose(1, 2) @ x_BMD.permute(1, 2, 0)).permute(2, 0, 1)


def _reduced_product(x_BMD: Tensor, weight_MDC: Tensor) -> Tensor:
    """The same in autocast's format, in which narrow products of each member take longer."""
    members, width, outputs = weight_MDC.shape
    if members * outputs > _FEW_IN_ALL:
        x_MBD = x_BMD.transpose(0, 1).contiguous()  # oneDNN copies what is not in one piece
        return (x_MBD @ weight_MDC).transpose(0, 1)
    # One product for all members, with zeros where one would meet another's values.
    weight_MCMD = weight_MDC.new_zeros(members, outputs, members, width)
    weight_MCMD.diagonal(dim1=0, dim2=2).copy_(weight_MDC.permute(2, 1, 0))
    weight_ND = weight_MCMD.view(members * outputs, members * width)
    return functional.linear(x_BMD.flatten(1), weight_ND).view(-1, members, outputs)


class _NarrowProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BMD: Tensor, weight_MDC: Tensor) -> Tensor:
        ctx.save_for_backward(x_BMD, weight_MDC)
        return _narrow_product(x_BMD, weight_MDC)

    @staticmethod
    def backward(ctx: Any, gradient_BMC: Tensor) -> tuple[Tensor, Tensor]:
        x_BMD, weight_MDC = ctx.saved_tensors
        gradient_MCB = gradient_BMC.permute(1, 2, 0).contiguous()
        of_weight_MDC = (gradient_MCB @ x_BMD.transpose(0, 1)).transpose(1, 2)
        outputs = weight_MDC.shape[2]
        if outputs > _FEW:
            return (gradient_MCB.transpose(1, 2) @ weight_MDC.transpose(1, 2)).transpose(0, 1), of_weight_MDC
        weight_CMD = weight_MDC.permute(2, 0, 1).contiguous()
        of_x_BMD = gradient_BMC[:, :, :1] * weight_CMD[0]
        for output in range(1, outputs):
            of_x_BMD.addcmul_(gradient_BMC[:, :, output : output + 1], weight_CMD[output])
        return of_x_BMD, of_weight_MDC
