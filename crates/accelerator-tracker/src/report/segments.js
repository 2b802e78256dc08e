
if (find("map")) {
  const map = find("map"), readout = find("at-block"), moment = find("moment"), colorBy = find("color-by");
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
  map.append(canvas);
  const states = ["allocated", "freed, in use by a stream", "free", "used by an alias", "paused"];
  const paintOf = ["allocated", "active", "free", "aliased", "paused"];
  const kindNames = ["Large pool", "Small pool", "Aliases"];
  const kinds = 7, rowHeight = 18, gap = 4, headHeight = 30;
  let places = [], at = -1, height = 0;
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name);
  const sum = (values) => values.reduce((total, value) => total + value, 0);

  /// Lays out the segments of one pool and stream in rows at the same scale, the largest first.
  function groups(segments) {
    let key = ([kind, stream, , , own]) => (kind === 2 ? "2" : kind + "/" + stream + "/" + own);
    if (new Set(segments.map(key)).size > 6) key = ([kind]) => String(kind);
    const found = new Map();
    for (const segment of segments) {
      if (!found.has(key(segment))) found.set(key(segment), []);
      found.get(key(segment)).push({ segment, size: sum(segment[3].map(([size]) => size)) });
    }
    const sorted = [...found.entries()].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
    return sorted.map(([name, members]) => {
      const [kind, stream, ...rest] = name.split("/"), own = rest.join("/"), total = sum(members.map(({ size }) => size));
      const rowBytes = Math.max(1, members[0].size, total / 12), rows = [];
      for (const member of members) {
        let row = rows.slice(-64).find((row) => row.used + member.size <= rowBytes);
        if (!row) rows.push(row = { used: 0, members: [] });
        row.members.push({ ...member, start: row.used });
        row.used += member.size;
      }
      const blocks = sum(members.map(({ segment }) => segment[3].length));
      const what = kind === "2" ? `${count(blocks)} block${blocks === 1 ? "" : "s"}, which is memory of the pools` : `${count(members.length)} segment${members.length === 1 ? "" : "s"}`;
      return { name: kindNames[kind] + (own ? " of private pool " + own : "") + (stream === undefined ? "" : ", stream " + stream), total, rowBytes, rows, what };
    });
  }

  /// Returns the colours of blocks and their meanings.
  function coloring(segments) {
    const blocks = segments.flatMap((segment) => segment[3]);
    const of = (state) => sum(blocks.filter((block) => block[1] === state).map(([size]) => size));
    const aliased = of(3), unknown = !aliased && segments.some(([kind]) => kind === 2);
    // In a history, only at the end is it known which memory of the segments aliases use.
    const rest = [["free", unknown ? "free or used elsewhere" : states[2], of(2)]];
    if (aliased) rest.push(["aliased", states[3], aliased]);
    if (of(4)) rest.push(["paused", states[4], of(4)]);
    const live = blocks.filter(([, state]) => state < 2);
    if (colorBy.value === "state") {
      const legend = [["allocated", states[0], of(0)], ["active", states[1], of(1)], ...rest];
      return { legend, of: ([, state]) => paintOf[state] };
    }
    if (colorBy.value === "size") {
      const largest = live.reduce((most, [size]) => Math.max(most, size), 1);
      const bounds = [5, 4, 3, 2, 1, 0].map((step) => 2 ** Math.ceil(Math.log2(largest)) / 8 ** step);
      const level = (size) => bounds.findIndex((bound) => size <= bound);
      const legend = bounds.map((bound, step) => ["level" + step, "to " + bytes(Math.max(1, Math.round(bound)))]);
      return { legend: [...legend, ...rest], of: ([size, state]) => (state < 2 ? "level" + level(size) : paintOf[state]) };
    }
    const scopes = new Map();
    for (const [size, , scope] of live) scopes.set(scope, (scopes.get(scope) || 0) + size);
    const named = [...scopes].filter(([scope]) => data.names[scope]).sort((a, b) => b[1] - a[1]);
    const top = new Map(named.slice(0, kinds).map(([scope], kind) => [scope, "kind" + kind]));
    const legend = named.slice(0, kinds).map(([scope, size]) => [top.get(scope), data.names[scope], size]);
    const others = sum([...scopes].filter(([scope]) => !top.has(scope)).map(([, size]) => size));
    return { legend: [...legend, ["rest", "others", others], ...rest], of: ([, state, scope]) => (state < 2 ? top.get(scope) || "rest" : paintOf[state]) };
  }

  function draw() {
    const { segments, name, call, more } = data.moments[moment.value];
    find("moment-name").textContent = `${data.names[name]}, call ${count(call)}` + (more ? `; ${count(more)} smaller segments are not shown` : "");
    const { legend, of } = coloring(segments), laid = groups(segments);
    find("legend").replaceChildren(...legend.map(([paint, text, size]) => {
      const item = document.createElement("li"), swatch = document.createElement("i");
      swatch.style.setProperty("--color", `var(--${paint})`);
      item.append(swatch, size === undefined ? text : `${text}, ${bytes(size)}`);
      return item;
    }));
    const width = Math.max(280, map.clientWidth), scale = window.devicePixelRatio || 1;
    const lines = laid.map((group) => wrapped(`${group.name}: ${bytes(group.total)} in ${group.what}; a row is ${bytes(group.rowBytes)}`, width));
    height = sum(laid.map(({ rows }, index) => headHeight + 16 * (lines[index].length - 1) + rows.length * (rowHeight + gap)));
    canvas.width = width * scale;
    canvas.height = Math.max(1, height * scale);
    canvas.style.height = height + "px";
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const paints = {};
    places = [];
    let top = 0;
    laid.forEach(({ rows, rowBytes }, index) => {
      pen.fillStyle = color("quiet");
      pen.font = "13px " + getComputedStyle(document.body).fontFamily;
      for (const line of lines[index]) pen.fillText(line, 0, (top += 16) + 4);
      top += headHeight - 16;
      for (const row of rows) {
        for (const { segment, start, size } of row.members) {
          let from = start;
          const end = Math.max(((start + size) / rowBytes) * width - 1.5, (start / rowBytes) * width + 0.7);
          for (const block of segment[3]) {
            const left = (from / rowBytes) * width, right = Math.min(((from + block[0]) / rowBytes) * width, end);
            const paint = of(block);
            pen.fillStyle = paints[paint] || (paints[paint] = color(paint));
            pen.fillRect(left, top, right - left > 4 ? right - left - 0.6 : Math.max(right - left, 0.4), rowHeight);
            places.push({ left, right, top, block, segment, size });
            from += block[0];
          }
        }
        top += rowHeight + gap;
      }
    });
    at = -1;
    tell(readout, [[places.length ? "Point at a block, or use the arrow keys." : "no segments"]]);
  }

  function wrapped(text, width) {
    pen.font = "13px " + getComputedStyle(document.body).fontFamily;
    const lines = [""];
    for (const word of text.split(" ")) {
      const longer = (lines[lines.length - 1] + " " + word).trim();
      if (pen.measureText(longer).width <= width) lines[lines.length - 1] = longer; else lines.push(word);
    }
    return lines;
  }

  function show(next) {
    if (!places.length) return;
    at = Math.max(0, Math.min(places.length - 1, next));
    const { left, right, top, block: [size, state, scope], segment: [kind, stream, address, , own], size: whole } = places[at];
    for (const old of map.querySelectorAll("span")) old.remove();
    const box = document.createElement("span");
    Object.assign(box.style, { position: "absolute", pointerEvents: "none", outline: "2px solid var(--text)",
      left: left + "px", top: top + "px", width: Math.max(2, right - left) + "px", height: rowHeight + "px" });
    map.append(box);
    const parts = [["block of", bytes(size)], ["", states[state]]];
    if (data.names[scope]) parts.push(["by", data.names[scope]]);
    if (kind === 2) parts.push(["in an alias at", address]);
    else parts.push(["in a segment of", bytes(whole)], ["at", address], [kindNames[kind].toLowerCase()], ["stream", stream]);
    if (own) parts.push(["private pool", own]);
    tell(readout, parts);
  }
  map.addEventListener("pointermove", (event) => {
    const frame = map.getBoundingClientRect(), x = event.clientX - frame.left, y = event.clientY - frame.top;
    const next = places.findIndex(({ left, right, top }) => y >= top && y < top + rowHeight && x >= left && x < right + 1);
    if (next >= 0) show(next);
  });
  map.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 50, PageDown: at + 50, Home: 0, End: places.length };
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(steps[event.key]);
  });
  const again = () => { for (const old of map.querySelectorAll("span")) old.remove(); draw(); };
  moment.addEventListener("input", again);
  colorBy.addEventListener("change", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let width = 0;
  new ResizeObserver(() => { if (map.clientWidth !== width) { width = map.clientWidth; again(); } }).observe(map);
  again();
}
