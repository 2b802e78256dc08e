// Reports problems of this page to the surrounding page: script errors, and texts that overlap or stick out.
window.addEventListener("load", () => setTimeout(() => {
  const problems = window.problems, width = document.documentElement.clientWidth;
  const tell = (problem) => { if (problems.length < 20) problems.push(problem); };

  /// Returns visible texts and their positions.
  function texts() {
    const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (!node.data.trim() || node.parentElement.closest("script, noscript, option")) continue;
      if (!node.parentElement.checkVisibility()) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const { left, right, top, bottom } of range.getClientRects()) {
        // Text beyond the edge of a scrolling table is clipped.
        const scrolls = node.parentElement.closest(".scroll");
        if (right - left < 1 || (scrolls && left > scrolls.getBoundingClientRect().right - 2)) continue;
        found.push({ text: node.data.trim().slice(0, 60), left, right, top: top + 2, bottom: bottom - 2, scrolls });
      }
    }
    return found;
  }

  function check(when) {
    if (document.documentElement.scrollWidth > width) tell(`${when}: the page is wider than its window`);
    const all = texts();
    if (all.length < 10) tell(`${when}: only ${all.length} texts`);
    all.forEach((a, number) => {
      if (!a.scrolls && (a.left < -1 || a.right > width + 1)) tell(`${when}: "${a.text}" sticks out`);
      for (const b of all.slice(number + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 1) tell(`${when}: "${a.text}" overlaps "${b.text}"`);
      }
    });
  }

  const find = (id) => document.getElementById(id);
  const press = (id, key) => find(id).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  check("at first");
  const told = find("at-call").textContent;
  press("memory", "ArrowLeft");
  if (JSON.parse(find("data").textContent).calls > 1 && find("at-call").textContent === told) tell("no key moves the call");
  for (const input of document.querySelectorAll("input[name=along]")) input.click();
  if (find("map")) {
    for (const by of ["size", "scope", "state"]) {
      find("color-by").value = by;
      find("color-by").dispatchEvent(new Event("change"));
      check("by " + by);
    }
    for (let moment = 0; moment <= +find("moment").max; moment += 1) {
      find("moment").value = moment;
      find("moment").dispatchEvent(new Event("input"));
    }
    press("map", "ArrowRight");
    const told = find("at-block").textContent;
    if (!told.includes("in a segment of") && told !== "no segments") tell("no key shows a block");
  }
  for (const details of document.querySelectorAll("details")) details.open = true;
  check("with all open");
  parent.postMessage({ width, problems, texts: texts().length }, "*");
}, 200));
