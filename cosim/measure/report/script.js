(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  // Light or dark: the system setting until the user chooses.
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  try { const kept = localStorage.getItem("rkcosim-theme"); if (kept) root.dataset.theme = kept; } catch (e) { /* not allowed */ }
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("rkcosim-theme", root.dataset.theme); } catch (e) { /* not allowed */ }
  });

  // Sorting: numbers by data-v, texts alphabetically, cells without a value last.
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    const sort = (index) => {
      const head = heads[index], body = table.tBodies[0];
      const first = body.rows[0] && body.rows[0].cells[index].classList.contains("words") ? "ascending" : "descending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      heads.forEach((h) => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const key = (row) => {
        const cell = row.cells[index], raw = cell.dataset.v;
        if (cell.classList.contains("words")) return cell.textContent;
        return raw === undefined ? NaN : Number(raw);
      };
      const sign = order === "ascending" ? 1 : -1;
      [...body.rows].map((row, n) => [key(row), n, row]).sort(([a, m], [b, n]) => {
        if (typeof a === "string") return sign * a.localeCompare(b) || m - n;
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b) || m - n;
        return sign * (a - b) || m - n;
      }).forEach(([, , row]) => body.append(row));
    };
    heads.forEach((head, index) => {
      head.tabIndex = 0;
      head.addEventListener("click", () => sort(index));
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(index); });
    });
  }
  const find = document.getElementById("find");
  if (find) find.addEventListener("input", () => {
    const words = find.value.toLowerCase();
    for (const row of document.getElementById("table").tBodies[0].rows)
      row.hidden = !row.textContent.toLowerCase().includes(words);
  });

  // Hover details: the titles, without the browser's delay.
  const tip = document.getElementById("tip");
  const wordsOf = (element) => {
    const owner = element.closest("[title], .has-title");
    for (let at = element; at && at !== document.body; at = at.parentElement) {
      const inner = at.querySelector(":scope > title");
      if (inner) { at.dataset.tip = inner.textContent; inner.remove(); }
      if (at.dataset && at.dataset.tip) return at.dataset.tip;
      if (at === owner && at.title) { at.dataset.tip = at.title; at.removeAttribute("title"); return at.dataset.tip; }
    }
    return "";
  };
  document.addEventListener("pointermove", (event) => {
    const words = event.target instanceof Element ? wordsOf(event.target) : "";
    tip.hidden = !words;
    if (!words) return;
    if (tip.textContent !== words) tip.textContent = words;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
  });
  document.addEventListener("pointerleave", () => { tip.hidden = true; });

  // A link to a row of the table opens its section.
  addEventListener("hashchange", () => {
    const at = document.getElementById(location.hash.slice(1));
    const section = at && at.closest("details");
    if (section) section.open = true;
  });
})();
