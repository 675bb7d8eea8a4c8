"""The document: its packaged form, its compiled validators and the types generated from it."""

from antiphon.spec.contract import Contract, packaged_contract, packaged_text

__all__ = ["Contract", "packaged_contract", "packaged_text"]
