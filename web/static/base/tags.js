// tags.js - the tags of a run. The server sends and stores them in one text with blanks between
// them; a blank inside a tag is a no-break space there.

const noBreak = "\u00a0";

/** Tags as people write them: "a b" is one tag. row: a run of the server. */
export function tagsOf({ tags }) {
  return (tags || "").split(" ").filter(Boolean).map(readableTags);
}

/** A text of the server with the blanks that people typed. */
export function readableTags(text) {
  return (text || "").replaceAll(noBreak, " ");
}

/** A tag, or "+tag" or "-tag", as one word of the verb `tag`. */
export function storedTag(tag) {
  return tag.replaceAll(" ", noBreak);
}
