// Who uses the console, and what that key may do.

import { get } from "./api.js";

export const me = { known: false, name: "", scopes: [], prefixes: [], credentials_required: false, role: null };

export async function loadMe(options) {
  Object.assign(me, await get("/v0/whoami", options), { known: true });
}

/** Why this key may not do it: "" when it may. `name` is the topic, router or pipeline concerned. */
export function forbidden(scope, name) {
  const missing = scope.split("+").filter((each) => !me.scopes.includes(each));
  if (missing.length) return `This key lacks the scope ${missing.join(" and ")}.`;
  if (name !== undefined && me.prefixes.length && !me.prefixes.some((prefix) => name.startsWith(prefix))) {
    return `This key may only touch names that begin with ${me.prefixes.join(" or ")}.`;
  }
  return "";
}
