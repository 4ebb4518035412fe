// What the pages can do with JavaScript. All content is in the HTML: this adds sorting, filters, charts,
// themes and copying. No request is made.
"use strict";
(function () {
  const root = document.documentElement;
  root.classList.add("js");

  function remembered() {
    try { return localStorage.getItem("samebits-theme"); } catch (error) { return null; }
  }

  function remember(theme) {
    try { localStorage.setItem("samebits-theme", theme); } catch (error) { /* a private window */ }
  }

  const dark = matchMedia("(prefers-color-scheme: dark)");

  function setTheme(theme) {
    root.dataset.theme = theme;
    for (const place of document.querySelectorAll("[data-drawn]")) draw(place);
  }

  setTheme(remembered() || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => { if (!remembered()) setTheme(dark.matches ? "dark" : "light"); });

  // Charts: drawn when they come into sight, before a print, and again in the colours of another theme.
  function draw(place) {
    const text = document.getElementById(place.dataset.chart).textContent;
    const style = getComputedStyle(root);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { labelColor: color("--text"), titleColor: color("--text"), gridColor: color("--line"),
      domainColor: color("--quiet"), tickColor: color("--quiet"), labelFontSize: 11, titleFontSize: 12 };
    const config = { background: null, axis, legend: { labelColor: color("--text"), titleColor: color("--text") },
      view: { stroke: color("--line") }, text: { color: color("--text") }, rule: { color: color("--text") } };
    place.dataset.drawn = "";
    const options = { ast: true, actions: false, defaultStyle: false, tooltip: false, renderer: "svg", config };
    vegaEmbed(place, JSON.parse(text), options).then((result) => addSaving(place, result.view), (error) => {
      place.textContent = "The chart cannot be drawn (" + error.message + "); the table below has its numbers.";
    });
  }

  function addSaving(place, view) {
    const svg = place.querySelector("svg");
    if (svg) {
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", place.dataset.title);
    }
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Save as SVG";
    button.addEventListener("click", () => view.toSVG().then((text) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
      link.download = place.dataset.chart + ".svg";
      link.click();
      URL.revokeObjectURL(link.href);
    }));
    place.append(button);
  }

  function watchCharts() {
    if (typeof vegaEmbed === "undefined") return;
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    }, { rootMargin: "300px" });
    const places = [...document.querySelectorAll("[data-chart]")];
    for (const place of places) {
      place.style.minHeight = place.dataset.height + "px"; // what comes into sight moves nothing
      seen.observe(place);
    }
    addEventListener("beforeprint", () => {
      for (const place of places) if (!("drawn" in place.dataset) && place.offsetParent) draw(place);
    });
  }

  // Copying
  function say(button, text) {
    const label = button.dataset.label || button.textContent;
    button.dataset.label = label;
    button.textContent = text;
    setTimeout(() => { button.textContent = label; }, 1500);
  }

  function copyText(text, button) {
    const copied = () => say(button, "Copied");
    if (navigator.clipboard && window.isSecureContext) {
      navigator.clipboard.writeText(text).then(copied, () => copyBySelection(text, button));
      return;
    }
    copyBySelection(text, button);
  }

  function copyBySelection(text, button) {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    say(button, done ? "Copied" : "Select the text and copy it");
  }

  document.addEventListener("click", (event) => {
    const skip = event.target.closest("[data-skip]");
    if (skip) {
      event.preventDefault(); // the address keeps the filters
      const target = document.getElementById(skip.hash.slice(1));
      const place = target.classList.contains("replaced") ? target.previousElementSibling : target;
      place.tabIndex = -1;
      place.focus();
      place.scrollIntoView();
      return;
    }
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.copy) copyText(document.getElementById(button.dataset.copy).textContent, button);
    if ("copyLink" in button.dataset) copyText(location.href, button);
    if ("themeSwitch" in button.dataset) {
      const theme = root.dataset.theme === "dark" ? "light" : "dark";
      remember(theme);
      setTheme(theme);
    }
  });

  // The matrix
  function matrix(source) {
    const region = source.closest(".scroll");
    const form = document.querySelector("[data-filters]");
    const count = document.querySelector("[data-count]");
    const ranks = source.dataset.ranks.split(" ");
    const heads = [...source.tHead.rows[0].cells];
    const isNarrow = matchMedia("(max-width: 600px)").matches;
    const stacks = heads.filter((head) => head.dataset.stack);
    const fields = heads.map((head) => head.dataset.field || "stack" + stacks.indexOf(head));
    const rows = [...source.tBodies[0].rows].map((tr, index) => {
      const row = { id: index, tr, ...tr.dataset, model: tr.cells[0].textContent };
      heads.forEach((head, i) => {
        if (head.dataset.stack) row[fields[i]] = ranks.findIndex((name) => tr.cells[i].classList.contains(name));
      });
      const titles = [...tr.querySelectorAll("[title]")].map((node) => node.title);
      row.text = [tr.textContent, tr.dataset.variant, tr.dataset.group, tr.dataset.verdicts, ...titles].join(" ").toLowerCase();
      row.same = tr.dataset.verdicts.split("|").includes("all identical");
      return row;
    });

    const content = (number) => (cell) => {
      const from = cell.getData().tr.cells[number];
      const to = cell.getElement();
      for (const name of from.classList) to.classList.add(name);
      const span = document.createElement("span");
      for (const node of from.childNodes) span.append(node.cloneNode(true));
      if (!number && isNarrow && hidesVariant) {
        const small = document.createElement("small");
        small.textContent = " " + cell.getData().variant;
        span.append(small);
      }
      return span;
    };

    // Wide enough for the longest text of the column, which the table does not look at before it draws it.
    const length = (cell) => [...cell.childNodes].reduce((sum, node) => {
      const hidden = node.nodeType === 1 && (node.matches(".hidden") ? node : node.querySelector(".hidden"));
      const seen = node.textContent.length - (hidden ? hidden.textContent.length : 0);
      return sum + (node.nodeName === "SMALL" ? Math.min(seen, node.matches(".what") ? 16 : 22) * 6.1 : seen * 7);
    }, 0);
    const widest = (i) => Math.max(...rows.map((row) => length(row.tr.cells[i])));
    const hidesVariant = fields.includes("variant");
    const nameWidth = 84;
    const onPhone = Math.max(66, Math.min(88, Math.floor((region.clientWidth - nameWidth) / stacks.length)));
    // Names, variant and known cause take some 600 pixels; no number needs more than 150.
    const onScreen = Math.max(150, Math.min(190, Math.floor((region.clientWidth - 600) / stacks.length)));
    const columns = heads.map((head, i) => {
      const title = head.innerText.trim() || head.textContent;
      const column = { title, field: fields[i], formatter: content(i) };
      if (head.dataset.stack) return { ...column, sorter: "number", minWidth: isNarrow ? onPhone : 88, width: isNarrow ? onPhone : Math.min(onScreen, Math.max(90, 50 + widest(i))) };
      if (head.dataset.field === "model") return { ...column, frozen: true, minWidth: isNarrow ? nameWidth : Math.min(230, 30 + widest(i)), width: isNarrow ? nameWidth : undefined };
      if (head.dataset.field === "findings") return { ...column, minWidth: isNarrow ? 240 : 220, tooltip: true };
      return { ...column, minWidth: 120, maxInitialWidth: 200, tooltip: true, visible: !isNarrow };
    });
    const holder = document.createElement("div");
    region.before(holder);
    region.classList.add("replaced");
    const many = columns.length > 16;
    // The group can be chosen above the table: it gives way to the results.
    const needed = columns.reduce((sum, column) => sum + (column.width || column.minWidth), 0);
    const group = columns[fields.indexOf("group")];
    if (group && needed > holder.clientWidth) group.visible = false;
    const table = new Tabulator(holder, {
      data: rows, columns, index: "id", maxHeight: Math.max(320, Math.round(innerHeight * .75)) + "px",
      layout: many ? "fitData" : "fitDataStretch", renderHorizontal: many ? "virtual" : "basic",
      placeholder: "No row fits these filters.",
    });

    // A word that names a release keeps the rows that move there.
    const releases = {};
    for (const head of stacks) {
      releases[head.dataset.stack] = releases[head.dataset.release] = head.dataset.stack;
    }
    function matches(row, word) {
      if (word in releases) return row.moved.split("|").includes(releases[word]);
      return row.text.includes(word);
    }

    const lists = ["verdicts", "findings", "signals"];
    function fits(row, wanted) {
      return Object.entries(wanted).every(([name, value]) => {
        if (name === "q") return value.toLowerCase().split(/\s+/).filter(Boolean).every((word) => matches(row, word));
        if (lists.includes(name)) return row[name].split("|").includes(value);
        return row[name] === value;
      });
    }

    function wanted() {
      return Object.fromEntries([...new FormData(form)].filter(([, value]) => value));
    }

    // Rows that are identical everywhere are folded, until a filter or the button asks for them.
    const same = rows.filter((row) => row.same).length;
    let unfolded = same === 0 || same === rows.length;
    const unfold = document.createElement("button");
    unfold.type = "button";
    unfold.textContent = same === 1 ? "Show the identical row" : "Show " + same + " identical rows";
    unfold.addEventListener("click", () => { unfolded = true; apply(wanted(), true); });

    function apply(state, remember) {
      const folds = !unfolded && Object.keys(state).length === 0;
      const shown = rows.filter((row) => fits(row, state));
      table.setFilter((row) => fits(row, state) && !(folds && row.same));
      for (const row of rows) row.tr.hidden = true;
      for (const row of shown) row.tr.hidden = false;
      count.textContent = (folds ? shown.length - same : shown.length) + " of " + rows.length + " rows ";
      if (folds) count.append(unfold);
      for (const chip of document.querySelectorAll(".chip")) {
        const isOn = new URLSearchParams(chip.hash.slice(2)).get("verdicts") === state.verdicts;
        if (isOn) chip.setAttribute("aria-current", "true"); else chip.removeAttribute("aria-current");
      }
      if (remember) writeLink(state);
    }

    function writeLink(state) {
      const sort = table.getSorters().map((sorter) => sorter.field + "." + sorter.dir).join(",");
      const all = unfolded && same && same < rows.length ? { all: "1" } : {};
      const text = new URLSearchParams(sort ? { ...state, ...all, sort } : { ...state, ...all }).toString();
      history.replaceState(null, "", "#" + (text ? "?" + text : ""));
    }

    function readLink() {
      if (!location.hash.startsWith("#?") && location.hash.length > 1) return;
      const state = Object.fromEntries(new URLSearchParams(location.hash.slice(2)));
      if (state.all) unfolded = true;
      for (const field of form.elements) if (field.name) field.value = state[field.name] || "";
      apply(wanted(), false);
      if (state.sort) table.setSort(state.sort.split(",").map((text) => {
        const [column, dir] = text.split(".");
        return { column, dir };
      }).filter((sorter) => table.getColumn(sorter.column)));
    }

    table.on("tableBuilt", () => {
      tidy(holder);
      readLink();
      table.on("dataSorted", () => writeLink(wanted()));
      addEventListener("hashchange", readLink);
      holder.dataset.ready = "";
      performance.mark("samebits-ready");
    });
    form.addEventListener("input", () => apply(wanted(), true));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(() => { table.clearSort(); apply({}, true); }));
    // In one file, a table that was built out of sight has no width.
    addEventListener("hashchange", () => { if (holder.offsetParent) table.redraw(true); });
  }

  function tidy(holder) {
    holder.setAttribute("aria-label", "The matrix");
    // a grid may have no child that takes the focus; the links in its cells do
    holder.querySelector(".tabulator-tableholder").removeAttribute("tabindex");
    for (const head of holder.querySelectorAll(".tabulator-col.tabulator-sortable")) {
      head.tabIndex = 0;
      head.addEventListener("keydown", (event) => {
        if (event.target !== head || (event.key !== "Enter" && event.key !== " ")) return;
        event.preventDefault();
        head.click();
      });
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    const source = document.querySelector("[data-matrix]");
    if (source && typeof Tabulator !== "undefined") matrix(source);
    for (const select of document.querySelectorAll("[data-go]")) {
      select.addEventListener("change", () => { location.href = select.value; });
    }
    watchCharts();
  });
})();
