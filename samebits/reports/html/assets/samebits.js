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

  // Charts: drawn when they come into sight, and again in the colours of another theme.
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
    if (svg) svg.setAttribute("role", "img");
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
    for (const place of document.querySelectorAll("[data-chart]")) seen.observe(place);
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
    const stacks = heads.slice(3, -1);
    const rows = [...source.tBodies[0].rows].map((tr, index) => {
      const cells = tr.cells;
      const row = { id: index, tr, model: cells[0].textContent, variant: cells[1].textContent,
        group: cells[2].textContent, findings: cells[cells.length - 1].textContent,
        dtype: tr.dataset.dtype, attention: tr.dataset.attention,
        verdicts: tr.dataset.verdicts, signals: tr.dataset.signals };
      row.text = (row.model + " " + row.variant + " " + row.group + " " + row.findings).toLowerCase();
      stacks.forEach((head, i) => { row["stack" + i] = ranks.indexOf(cells[3 + i].classList[0]); });
      return row;
    });

    const content = (number) => (cell) => {
      const from = cell.getData().tr.cells[number];
      const to = cell.getElement();
      for (const name of from.classList) to.classList.add(name);
      const box = document.createDocumentFragment();
      for (const node of from.childNodes) box.append(node.cloneNode(true));
      const span = document.createElement("span");
      span.append(box);
      return span;
    };

    const stackColumns = stacks.map((head, i) => ({ title: head.innerText.trim() || head.textContent, field: "stack" + i,
      sorter: "number", minWidth: 110, maxInitialWidth: 200, formatter: content(3 + i) }));
    const columns = [
      { title: "Model", field: "model", frozen: true, minWidth: 140, maxInitialWidth: 240, formatter: content(0) },
      { title: "Variant", field: "variant", minWidth: 130, formatter: content(1) },
      { title: "Group", field: "group", minWidth: 120, maxInitialWidth: 160, tooltip: true, formatter: content(2) },
      ...stackColumns,
      { title: "Findings", field: "findings", minWidth: 120, formatter: content(heads.length - 1) },
    ];
    const holder = document.createElement("div");
    region.before(holder);
    region.classList.add("replaced");
    const many = columns.length > 16;
    const table = new Tabulator(holder, {
      data: rows, columns, index: "id", height: Math.max(320, Math.min(rows.length * 34 + 60, Math.round(innerHeight * .75))) + "px",
      layout: many ? "fitData" : "fitDataFill", renderHorizontal: many ? "virtual" : "basic",
      placeholder: "No row fits these filters.",
    });

    const separators = { verdicts: "|", findings: " ", signals: "|" };
    function fits(row, wanted) {
      return Object.entries(wanted).every(([name, value]) => {
        if (name === "q") return value.toLowerCase().split(/\s+/).every((word) => row.text.includes(word));
        if (name in separators) return row[name].split(separators[name]).includes(value);
        return row[name] === value;
      });
    }

    function wanted() {
      return Object.fromEntries([...new FormData(form)].filter(([, value]) => value));
    }

    function apply(state, remember) {
      const shown = rows.filter((row) => fits(row, state));
      table.setFilter((row) => fits(row, state));
      for (const row of rows) row.tr.hidden = true;
      for (const row of shown) row.tr.hidden = false;
      count.textContent = shown.length + " of " + rows.length + " rows";
      if (remember) writeLink(state);
    }

    function writeLink(state) {
      const sort = table.getSorters().map((sorter) => sorter.field + "." + sorter.dir).join(",");
      const text = new URLSearchParams(sort ? { ...state, sort } : state).toString();
      history.replaceState(null, "", "#" + (text ? "?" + text : ""));
    }

    function readLink() {
      if (!location.hash.startsWith("#?") && location.hash.length > 1) return;
      const state = Object.fromEntries(new URLSearchParams(location.hash.slice(2)));
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
