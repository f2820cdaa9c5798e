// Makes tables sortable and offers a switch between light and dark. The page is complete without it.
(() => {
  "use strict";
  const root = document.documentElement;

  const key = (cell) => {
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    const text = cell.textContent.trim();
    const number = Number(text.replace(/[,\u2009\s%★]/g, "").replace("−", "-").replace("+", ""));
    return text !== "" && Number.isFinite(number) ? number : text;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  const sort = (table, column, descending) => {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => ({ row, key: key(row.cells[column]) }));
    const gone = (entry) => entry.key === "–" || entry.key === "";
    rows.sort((a, b) => {
      if (gone(a) !== gone(b)) return gone(a) ? 1 : -1;
      return descending ? compare(b.key, a.key) : compare(a.key, b.key);
    });
    body.append(...rows.map((entry) => entry.row));
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = Array.from(table.tHead.rows[0].cells);
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      heading.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const before = heading.getAttribute("aria-sort");
        // Numbers are asked for the greatest first, words in the order of the alphabet.
        const first = heading.classList.contains("number") ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        const now = before === first ? other : first;
        headings.forEach((one) => one.setAttribute("aria-sort", "none"));
        heading.setAttribute("aria-sort", now);
        sort(table, column, now === "descending");
      });
    });
  }

  const theme = document.createElement("button");
  theme.type = "button";
  theme.className = "theme";
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => { theme.textContent = isDark() ? "Light page" : "Dark page"; };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  label();
  document.querySelector("header.top").append(theme);

  // What is folded away on the screen is part of a print, where it matters.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("details:not([open]):not(.screen)"));
    opened.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => { opened.forEach((one) => { one.open = false; }); });
})();
