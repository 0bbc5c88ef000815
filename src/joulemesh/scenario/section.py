"""What all sections of a scenario have in common."""

from __future__ import annotations

__all__ = ["Section"]

from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationInfo, field_validator
from pydantic_core import CoreSchema

from joulemesh.scenario.fields import in_si, schema_with_units
from joulemesh.units import unit_of


class Section(BaseModel):
    """A part of a scenario; a field whose name ends in a unit also takes texts with units."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    @field_validator("*", mode="before")
    @classmethod
    def _in_si(cls, value: Any, info: ValidationInfo) -> Any:
        unit = unit_of(info.field_name or "")
        return value if unit is None else in_si(value, unit)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe each field, and that its numbers may have units."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        for field, part in schema.get("properties", {}).items():
            unit = unit_of(field)
            if unit is not None:
                schema["properties"][field] = schema_with_units(part, unit)
        return schema
