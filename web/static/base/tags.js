// tags.js - the tags of a run. The server sends and stores all tags of a run in one text, separated by blanks; a blank
// inside a tag is stored as a no-break space.

const noBreak = "\u00a0";

/** Returns the tags as users write them: "a b" may be one tag. row: a run of the server. */
export function tagsOf({ tags }) {
  return (tags || "").split(" ").filter(Boolean).map(readableTags);
}

/** Converts no-break spaces to blanks. */
export function readableTags(text) {
  return (text || "").replaceAll(noBreak, " ");
}

export function storedTag(tag) {
  return tag.replaceAll(" ", noBreak);
}
