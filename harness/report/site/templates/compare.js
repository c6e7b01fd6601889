(() => {
  "use strict";

  const form = document.getElementById("pickers");
  const place = document.getElementById("comparison");
  const isKey = (key) => /^[0-9a-f]{16}$/.test(key || "");
  const known = new Map();   // by key: what data/KEY.js said, or null where there is none

  window.kernelgate = (told) => { known.set(told.key, told); };

  const load = (key) => new Promise((resolve) => {
    if (known.has(key)) { resolve(known.get(key)); return; }
    const script = document.createElement("script");
    script.src = `data/${key}.js`;
    script.onload = () => resolve(known.get(key) ?? null);
    script.onerror = () => resolve(null);
    document.head.append(script);
  });

  // ------------------------------------------------------------ elements: texts are never HTML
  const element = (tag, words, more = {}) => {
    const made = document.createElement(tag);
    if (words !== undefined) made.append(words);
    for (const [name, value] of Object.entries(more)) made.setAttribute(name, value);
    return made;
  };
  const link = (one) => element("a", one.name, { href: `submissions/${one.key}.html` });
  const paragraph = (...parts) => {
    const made = element("p");
    made.append(...parts);
    return made;
  };

  // ------------------------------------------------------------ figures
  const duration = (us) => {
    if (us === null || us === undefined) return "–";
    if (us >= 1000) return `${Number((us / 1000).toPrecision(3))} ms`;
    return us >= 0.1 ? `${Number(us.toPrecision(3))} µs` : `${Number((us * 1000).toPrecision(2))} ns`;
  };
  const withInterval = ([ratio, low, high]) => `${ratio.toFixed(2)}× [${low.toFixed(2)}, ${high.toFixed(2)}]`;
  const percent = (share) => `${(share * 100).toFixed(1)}%`;

  // ------------------------------------------------------------ the comparison
  const warnings = (a, b) => {
    const said = [];
    if (a.problem !== b.problem) said.push(`They are of two problems, ${a.problem} and ${b.problem}: nothing is comparable but their sources.`);
    for (const [name, words] of [["device", "devices"], ["model", "models of devices"], ["versions", "versions"], ["judge", "judges"]]) {
      if (a[name] !== b[name]) said.push(`Measured with two ${words}: ${a[name]}, and ${b[name]}.`);
    }
    return said;
  };

  // A test is of two in one order, how the second stands to the first: the other way round everything is turned.
  const TURNED = { faster: "slower", slower: "faster", "no different": "no different" };
  const turned = (line) => {
    const [ratio, low, high] = line.speed;
    return { ...line, us: line.us && [line.us[1], line.us[0]], speed: [1 / ratio, 1 / high, 1 / low], word: TURNED[line.word] };
  };

  const summary = (rows) => {
    const sure = rows.filter((row) => row.seen !== null);
    const said = ["faster", "slower", "no different"].map((word) => [word, sure.filter((row) => row.word === word).length]);
    said.push(["in doubt", rows.length - sure.length]);
    const parts = said.filter(([, number]) => number).map(([word, number]) => `${word} on ${number}`);
    return element("p", `B is ${parts.join(", ")} of ${rows.length} time${rows.length === 1 ? "" : "s"}.`, { class: "verdict" });
  };

  const table = (headings, rows) => {
    const region = element("div", undefined, { class: "scroll", role: "region", tabindex: "0", "aria-label": "Case by case" });
    const made = element("table"), head = element("tr"), top = element("thead"), body = element("tbody");
    head.append(...headings.map((words) => element("th", words, { scope: "col" })));
    for (const [name, ...cells] of rows) {
      const row = element("tr");
      row.append(element("th", name, { scope: "row" }), ...cells.map(([words, kind]) => element("td", words, kind ? { class: kind } : {})));
      body.append(row);
    }
    top.append(head);
    made.append(top, body);
    region.append(made);
    return region;
  };

  const KINDS = { faster: "good", slower: "bad" };
  const testedTable = (test, a) => {
    const lines = (found) => (test.first === a.key ? found : found.map(turned));
    const rows = lines(test.rows);
    if (!rows.length) return [paragraph("Nothing was timed in both.")];
    const shown = [...rows, ...lines(test.means)].map((line) => [
      line.name, [duration(line.us?.[0])], [duration(line.us?.[1])], [line.seen === null ? "in doubt" : line.word, KINDS[line.word]],
      [withInterval(line.speed)], [percent(line.floor)], [line.seen === null ? "–" : percent(line.seen)], [line.label],
    ]);
    return [
      summary(rows),
      table(["case", "A", "B", "B is", "B over A [95%]", "floor", "seen from", ""], shown),
      paragraph(`By ${test.test}. Floor: so much may differ from run to run where the source does not. `
        + "Seen from: so large a difference is found in four comparisons of five."),
    ];
  };

  // Two that were not tested when the site was made: their figures, and who tests them.
  const untestedTable = (a, b) => {
    const others = new Map(b.cases.map((one) => [one.name, one]));
    const shared = a.problem === b.problem ? a.cases.filter((one) => others.has(one.name)) : [];
    if (!shared.length) return [paragraph("No timed case is common to both.")];
    const rows = shared.map((one) => {
      const other = others.get(one.name);
      return [one.name, [duration(one.us)], [duration(other.us)], [duration(one.captured_us)], [duration(other.captured_us)]];
    });
    const words = `eval.py compare ${a.sha256.slice(0, 10)} ${b.sha256.slice(0, 10)}`;
    return [
      paragraph("These two were not tested when the site was made. This tests them: ", element("code", words)),
      table(["case", "A", "B", "A, captured", "B, captured"], rows),
    ];
  };

  // ------------------------------------------------------------ the sources, line by line
  const MOST_CELLS = 4e6;
  const difference = (a, b) => {
    let start = 0, endA = a.length, endB = b.length;
    while (start < endA && start < endB && a[start] === b[start]) start++;
    while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) { endA--; endB--; }
    const rows = endA - start, columns = endB - start;
    if (rows * columns > MOST_CELLS) return null;
    // Lengths of the longest common subsequences of what is left.
    const width = columns + 1, lengths = new Uint16Array((rows + 1) * width);
    for (let i = rows - 1; i >= 0; i--) {
      for (let j = columns - 1; j >= 0; j--) {
        lengths[i * width + j] = a[start + i] === b[start + j] ? lengths[(i + 1) * width + j + 1] + 1
          : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
      }
    }
    const found = [];
    let i = 0, j = 0;
    while (i < rows || j < columns) {
      if (i < rows && j < columns && a[start + i] === b[start + j]) { found.push([" ", a[start + i]]); i++; j++; }
      else if (j < columns && (i === rows || lengths[i * width + j + 1] > lengths[(i + 1) * width + j])) { found.push(["+", b[start + j++]]); }
      else { found.push(["-", a[start + i++]]); }
    }
    const before = a.slice(Math.max(0, start - 3), start).map((line) => [" ", line]);
    const behind = a.slice(endA, endA + 3).map((line) => [" ", line]);
    return [...before, ...found, ...behind];
  };

  const sources = (a, b) => {
    const made = element("section");
    made.append(element("h2", "Sources"));
    if (a.source === null || b.source === null) { made.append(paragraph("The text of one of them is not kept here, or too long.")); return made; }
    if (a.source === b.source) { made.append(paragraph("They are the same text.")); return made; }
    const found = difference(a.source.split("\n"), b.source.split("\n"));
    if (!found) { made.append(paragraph("They have too little in common to be shown line by line.")); return made; }
    const shown = element("pre", undefined, { class: "difference", tabindex: "0", role: "region", "aria-label": "Difference of the sources" });
    for (const [sign, line] of found) {
      shown.append(element(sign === "+" ? "ins" : sign === "-" ? "del" : "span", `${sign} ${line}\n`));
    }
    made.append(paragraph("Lines of B alone begin with +, of A alone with -."), shown);
    return made;
  };

  const choose = (field, key) => {
    if (![...field.options].some((option) => option.value === key)) field.append(new Option(key, key));
    field.value = key;
  };

  const show = async () => {
    const asked = new URLSearchParams(location.hash.slice(1) || location.search.slice(1));
    const keys = ["a", "b"].map((name) => asked.get(name));
    keys.forEach((key, n) => choose(form.elements[n], isKey(key) ? key : ""));
    place.replaceChildren();
    if (!keys.every(isKey)) return;
    const [a, b] = await Promise.all(keys.map(load));
    if (!a || !b) { place.append(paragraph("One of the two is not on this site.")); return; }
    const heading = element("h2");
    heading.append("A: ", link(a), ", B: ", link(b));
    place.append(heading, ...warnings(a, b).map((said) => element("p", said, { class: "warning" })));
    for (const one of [a, b]) place.append(paragraph(`${one === a ? "A" : "B"}, ${one.problem} on ${one.device}, ${one.date}: ${one.verdict}`));
    const test = a.tested.includes(b.key) ? await load([a.key, b.key].sort().join("-")) : null;
    place.append(...(test ? testedTable(test, a) : untestedTable(a, b)), sources(a, b));
  };

  form.elements.b.append(...[...form.elements.a.options].map((option) => option.cloneNode(true)));
  form.hidden = false;
  form.addEventListener("change", () => {
    const asked = new URLSearchParams();
    for (const field of form.elements) if (field.value) asked.set(field.name, field.value);
    location.hash = asked;
  });
  addEventListener("hashchange", show);
  show();
})();
