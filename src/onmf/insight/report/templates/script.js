"use strict";
(() => {
  const root = document.documentElement;
  const toggle = document.getElementById("theme");
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const PRINTED = 660; // pixels: what fits on a page of paper

  // The charts take their colours from the page.
  const themed = () => {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--line"), linecolor: colour("--soft"), zerolinecolor: colour("--line"), tickcolor: colour("--soft") };
    return { text: colour("--text"), card: colour("--card"), axis, colours: [colour("--accent"), colour("--second"), colour("--text")] };
  };
  const layoutOf = (name) => {
    const now = themed();
    const given = figures[name].layout;
    const heat = figures[name].data[0].type === "heatmap";
    const grid = heat ? { ...now.axis, showgrid: false } : now.axis;
    return {
      ...given,
      xaxis: { automargin: true, ...grid, ...given.xaxis },
      yaxis: { automargin: true, ...grid, ...given.yaxis, ...(logarithmic.has(name) ? { type: "log" } : {}) },
      colorway: now.colours,
      font: { color: now.text, family: getComputedStyle(document.body).fontFamily, size: 13 },
      hoverlabel: { bgcolor: now.card, bordercolor: now.axis.linecolor, font: { color: now.text } },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 10, r: 10, t: 10, b: 10 },
      showlegend: false,
      ...("showlegend" in given ? { showlegend: given.showlegend } : {}),
      dragmode: false,
      autosize: true,
    };
  };
  const logarithmic = new Set();
  const settings = { responsive: true, displayModeBar: false };
  const draw = (width) => {
    for (const name of Object.keys(figures)) {
      const layout = layoutOf(name);
      if (width) Object.assign(layout, { width, autosize: false });
      Plotly.react(name, figures[name].data, layout, settings);
    }
  };

  const darken = (dark) => {
    root.classList.toggle("dark", dark);
    toggle.setAttribute("aria-pressed", String(dark));
    toggle.textContent = dark ? "Light" : "Dark";
  };
  darken(system.matches);
  draw();
  toggle.addEventListener("click", () => { darken(!root.classList.contains("dark")); draw(); });
  system.addEventListener("change", (event) => { darken(event.matches); draw(); });

  for (const button of document.querySelectorAll("[data-log]")) {
    button.addEventListener("click", () => {
      const name = button.dataset.log;
      const on = !logarithmic.has(name);
      on ? logarithmic.add(name) : logarithmic.delete(name);
      button.setAttribute("aria-pressed", String(on));
      draw();
    });
  }

  // Paper is light, and narrower than most windows.
  let before = false;
  window.addEventListener("beforeprint", () => { before = root.classList.contains("dark"); darken(false); draw(PRINTED); });
  window.addEventListener("afterprint", () => { darken(before); draw(); });

  // A component that is folded away is unfolded by a link to it.
  const unfold = () => {
    const place = location.hash && document.getElementById(location.hash.slice(1));
    const folded = place && place.closest("details");
    if (folded) { folded.open = true; place.scrollIntoView(); }
  };
  window.addEventListener("hashchange", unfold);
  unfold();

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
      const order = (a, b) => isNaN(key(a)) || isNaN(key(b)) ? key(a).localeCompare(key(b)) : key(a) - key(b);
      const rows = [...table.tBodies[0].rows].sort((a, b) => down ? order(b, a) : order(a, b));
      table.tBodies[0].append(...rows);
    }));
  }
})();
