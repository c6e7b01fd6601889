(() => {
  "use strict";

  // ------------------------------------------------------------ the theme
  const themes = ["system", "light", "dark"];
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const say = () => { button.textContent = "Theme: " + (root.dataset.theme || "system"); };
  button.hidden = false;
  say();
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "system") + 1) % themes.length];
    if (next === "system") delete root.dataset.theme; else root.dataset.theme = next;
    try { localStorage.setItem("kernelgate-theme", next); } catch { /* it holds until the page is left */ }
    say();
  });

  // ------------------------------------------------------------ tables that can be sorted
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.v !== undefined) return cell.dataset.v === "" ? null : Number(cell.dataset.v);
    const text = cell.textContent.trim();
    return text === "" || text === "–" ? null : text;
  };
  const compareValues = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const sortBy = (table, heading, column) => {
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    table.classList.add("sorted");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [valueOf(row, column), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);  // what is empty stands last either way
      return (down ? -1 : 1) * compareValues(a, b);
    });
    body.append(...rows.map(([, row]) => row));
  };
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    if (table.tBodies[0].rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      if (heading.tagName !== "TH") return;
      const inner = document.createElement("button");
      inner.type = "button";
      inner.append(...heading.childNodes);
      heading.append(inner);
      inner.addEventListener("click", () => sortBy(table, heading, column));
    });
  }

  // ------------------------------------------------------------ filters, which the address keeps
  for (const form of document.querySelectorAll("form[data-filters]")) {
    const table = document.getElementById(form.dataset.filters);
    const status = form.querySelector("[role=status]");
    const fields = [...form.elements].filter((field) => field.name);
    const fits = (row, field) => {
      if (!field.value) return true;
      if (field.name === "text") return row.textContent.toLowerCase().includes(field.value.toLowerCase());
      const value = row.dataset[field.name] ?? "";
      return field.name === "dtype" ? value.split(" ").includes(field.value) : value === field.value;
    };
    const apply = () => {
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        row.hidden = !fields.every((field) => fits(row, field));
        shown += !row.hidden;
      }
      status.textContent = `${shown} of ${table.tBodies[0].rows.length} entries`;
    };
    const keep = () => {
      const asked = new URLSearchParams(fields.filter((field) => field.value).map((field) => [field.name, field.value]));
      history.replaceState(null, "", "#" + asked);
      apply();
    };
    const read = () => {
      const asked = new URLSearchParams(location.hash.slice(1));
      for (const field of fields) if (asked.has(field.name)) field.value = asked.get(field.name);
      apply();
    };
    form.hidden = false;
    form.addEventListener("input", keep);
    form.addEventListener("submit", (event) => event.preventDefault());
    addEventListener("hashchange", read);
    read();
  }

  // ------------------------------------------------------------ commands that can be copied
  for (const command of navigator.clipboard ? document.querySelectorAll("pre.command") : []) {
    const copy = document.createElement("button");
    copy.type = "button";
    copy.textContent = "Copy";
    copy.addEventListener("click", async () => {
      const copied = navigator.clipboard.writeText(command.textContent);
      copy.textContent = await copied.then(() => "Copied", () => "It cannot be copied here");
    });
    command.after(copy);
  }

  // ------------------------------------------------------------ what an address names may be folded away
  const unfold = () => {
    const id = location.hash.slice(1);
    const folded = id && document.getElementById(id)?.closest("details");
    if (folded) folded.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
})();
