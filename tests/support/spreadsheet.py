"""Write the smallest spreadsheet that is one."""

from __future__ import annotations

import io
import zipfile
from typing import Any


def workbook(cells: list[list[Any]]) -> bytes:
    """Return an xlsx file with one sheet."""
    lines = []
    for row in cells:
        texts = [
            f'<c t="inlineStr"><is><t>{cell}</t></is></c>'
            if isinstance(cell, str)
            else ("<c/>" if cell is None else f"<c><v>{cell}</v></c>")
            for cell in row
        ]
        lines.append(f"<row>{''.join(texts)}</row>")
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    members = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        f'<Override PartName="/xl/workbook.xml" ContentType="{sheet}.sheet.main+xml"/>'
        f'<Override PartName="/xl/s.xml" ContentType="{sheet}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        '<sheet name="S" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/worksheet" Target="s.xml"/></Relationships>',
        "xl/s.xml": f'<worksheet xmlns="{main}"><sheetData>{"".join(lines)}</sheetData>'
        "</worksheet>",
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return out.getvalue()
