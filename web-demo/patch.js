// JSON Patch (RFC 6902), as STATE_DELTA has it. No DOM.

/** A new value with the operations applied to `value`; throws a `RangeError` when one of them does not fit. */
export const patched = (value, operations) => operations.reduce(applied, structuredClone(value));

function applied(root, { op, path, from, value }) {
  switch (op) {
    case "add":
      return add(root, path, value);
    case "remove":
      return remove(root, path);
    case "replace":
      return path === "" ? value : add(remove(root, path), path, value);
    case "move":
      return moved(root, from, path);
    case "copy":
      return add(root, path, structuredClone(get(root, from)));
    case "test":
      if (JSON.stringify(get(root, path)) !== JSON.stringify(value)) throw new RangeError(`${path} is another value`);
      return root;
    default:
      throw new RangeError(`no operation ${op}`);
  }
}

function add(root, path, value) {
  if (path === "") return value;
  const { holder, key } = placeOf(root, path);
  if (!Array.isArray(holder)) holder[key] = value;
  else if (key === "-") holder.push(value);
  else holder.splice(indexIn(holder, key, holder.length), 0, value);
  return root;
}

function remove(root, path) {
  if (path === "") return null;
  get(root, path); // it must be there
  const { holder, key } = placeOf(root, path);
  if (Array.isArray(holder)) holder.splice(Number(key), 1);
  else delete holder[key];
  return root;
}

function moved(root, from, path) {
  const value = get(root, from);
  return add(remove(root, from), path, value);
}

const get = (root, path) => (path === "" ? root : step(placeOf(root, path)));

/** What holds the value of a path, and its key there. */
function placeOf(root, path) {
  const keys = path.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
  const key = keys.pop();
  const holder = keys.reduce((value, next) => step({ holder: value, key: next }), root);
  if (typeof holder !== "object" || holder === null || key === undefined) throw new RangeError(`there is no ${path}`);
  return { holder, key };
}

function step({ holder, key }) {
  if (Array.isArray(holder)) return holder[indexIn(holder, key, holder.length - 1)];
  if (typeof holder !== "object" || holder === null || !Object.hasOwn(holder, key)) throw new RangeError(`there is no ${key}`);
  return holder[key];
}

function indexIn(list, key, last) {
  const index = Number(key);
  if (!/^\d+$/.test(key) || index > last) throw new RangeError(`there is no ${key}`);
  return index;
}
