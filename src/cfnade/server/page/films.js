// How an item is called on the page. "Matrix, The (1999)" reads The Matrix, 1999.

const ARTICLES = "The|A|An|Le|La|Les|L'|Il|Lo|El|Los|Las|Der|Die|Das|Un|Une";
const PARTS = new RegExp(`^(.+?)(?:, (${ARTICLES}))?((?: \\([^()]*\\))*?)(?: \\((\\d{4})\\))?$`);

/** The name, other names that the title gives in brackets, and the year (or ""). An id that is a
    text is a title as good as any; a bare number is shown as one. */
export function named({ item, title }) {
  const text = (title || (typeof item === "string" ? item : "")).trim();
  if (!text) return { name: `No. ${item}`, also: "", year: "" };
  const [, main, article, also, year] = PARTS.exec(text) ?? [null, text, "", "", ""];
  const front = article ? article + (article.endsWith("'") ? "" : " ") : "";
  return { name: front + main, also: also.trim(), year: year ?? "" };
}

/** One line of text: name and year. */
export function called(film) {
  const { name, year } = named(film);
  return year ? `${name} (${year})` : name;
}
