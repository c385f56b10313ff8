// Comma-separated text: quotes, doubled quotes, line ends of any kind, a byte-order mark.

/** Lines of fields. The separator (comma, semicolon or tab) is the first line's commonest. */
export function parse(text) {
  const source = text.replace(/^\uFEFF/, "");
  const separator = separatorOf(source);
  const lines = [];
  let line = [];
  let field = "";
  let quoted = false;
  const endLine = () => {
    line.push(field);
    if (line.length > 1 || line[0] !== "") lines.push(line);
    line = [];
    field = "";
  };
  for (let at = 0; at < source.length; at += 1) {
    const sign = source[at];
    if (quoted) {
      if (sign !== '"') field += sign;
      else if (source[at + 1] === '"') field += source[(at += 1)];
      else quoted = false;
    } else if (sign === '"' && field === "") quoted = true;
    else if (sign === separator) {
      line.push(field);
      field = "";
    } else if (sign === "\n" || sign === "\r") {
      if (sign === "\r" && source[at + 1] === "\n") at += 1;
      endLine();
    } else field += sign;
  }
  endLine();
  return lines;
}

function separatorOf(source) {
  const first = source.slice(0, source.search(/[\r\n]|$/)).replace(/"[^"]*"/g, "");
  const count = (sign) => first.split(sign).length;
  return [",", ";", "\t"].reduce((best, sign) => (count(sign) > count(best) ? sign : best));
}

export function write(lines) {
  const field = (value) => {
    const text = String(value ?? "");
    return /[",\r\n;\t]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return lines.map((line) => line.map(field).join(",") + "\r\n").join("");
}

/** The text of a file: UTF-8, or else Windows' western code page. */
export function decode(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}
