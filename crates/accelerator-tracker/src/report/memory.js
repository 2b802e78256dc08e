"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
for (const element of document.querySelectorAll(".needs-script")) element.hidden = false;

const noBreak = "\u00a0";
const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
function bytes(value) {
  const size = Math.abs(value);
  let power = 0;
  while (power < 6 && size >= 1024 ** (power + 1)) power += 1;
  return (power ? (value / 1024 ** power).toFixed(2) : value) + noBreak + units[power];
}
const count = (value) => value.toLocaleString("en");
function duration(microseconds) {
  if (microseconds < 1e3) return microseconds + noBreak + "µs";
  if (microseconds < 1e6) return (microseconds / 1e3).toFixed(2) + noBreak + "ms";
  return (microseconds / 1e6).toFixed(3) + noBreak + "s";
}
/// Shows pairs of a label and a value, or texts. They can contain anything, and are shown as text.
function tell(element, parts) {
  element.replaceChildren();
  for (const [label, value] of parts) {
    if (element.childNodes.length) element.append(" · ");
    if (label) element.append(value === undefined ? label : label + " ");
    if (value !== undefined) element.append(Object.assign(document.createElement("b"), { textContent: value }));
  }
}
/// Returns 1, 2 or 5 times a power of ten.
function round(least, whole) {
  if (!(least > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999);
  return whole ? Math.max(1, step) : step;
}

{
  const chart = find("memory"), readout = find("at-call"), sample = data.sample;
  const series = ["allocated", "active", "reserved"];
  const namespace = "http://www.w3.org/2000/svg";
  const greatest = (values) => values.reduce((most, value) => Math.max(most, value), 0);
  const peaks = Object.fromEntries(series.map((name) => [name, greatest(sample[name])]));
  const pen = document.createElement("canvas").getContext("2d");
  let along = "call", shown = new Set(series), at = sample.allocated.indexOf(peaks.allocated), frame = null;

  function add(parent, name, attributes, text) {
    const element = document.createElementNS(namespace, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  }
  function textWidth(text) {
    pen.font = "12px " + getComputedStyle(document.body).fontFamily;
    return pen.measureText(text).width;
  }
  function ended(text, width) {
    if (textWidth(text) <= width) return text;
    let kept = text.length;
    while (kept > 1 && textWidth(text.slice(0, kept) + "…") > width) kept -= 1;
    return text.slice(0, kept) + "…";
  }

  /// Places names of markers in up to `rowCount` rows, from right to left, as in the pictures of the library.
  function placed(markers, rightEnd, longest, rowCount) {
    const apart = 8, limits = Array(rowCount).fill(rightEnd + apart), names = [];
    for (const [x, name] of markers) {
      const reached = limits.findIndex((limit) => x >= limit);
      const rows = reached < 0 ? limits : limits.slice(0, reached);
      const text = ended(name, longest), width = textWidth(text);
      const flipped = x + 4 + width > rightEnd;
      const fits = (limit) => (flipped ? x : x + 4 + width) + apart <= limit;
      const row = flipped ? rows.findLastIndex(fits) : rows.findIndex(fits);
      if (row < 0) continue;
      for (let below = 0; below < row; below += 1) limits[below] = Math.min(limits[below], x);
      limits[row] = flipped ? x - 4 - width : x;
      names.push({ x, text, row, flipped, boundary: name === "fw_bw_boundary" });
    }
    return names;
  }

  function draw() {
    const width = Math.max(280, chart.clientWidth), positions = sample[along];
    if (!positions.length) return chart.replaceChildren("no operators were recorded");
    const latest = positions[positions.length - 1];
    const last = along === "call" ? data.calls : latest + Math.max(1, Math.ceil(latest / 100));
    let most = greatest([...shown].map((name) => peaks[name]));
    const withCapacity = data.capacity && data.capacity <= most * 1.6;
    most = Math.max(1, (withCapacity ? Math.max(most, data.capacity) : most) * 1.04);
    let power = 0;
    while (power < 6 && most >= 1024 ** (power + 1)) power += 1;
    const unit = 1024 ** power, step = round(most / unit / 5, power === 0);
    const decimals = Math.max(0, -Math.floor(Math.log10(step)));
    const ticks = [];
    for (let tick = 0; tick * step * unit <= most; tick += 1) {
      ticks.push([tick * step * unit, tick ? (tick * step).toFixed(decimals) + " " + units[power] : "0"]);
    }
    const left = 12 + greatest(ticks.map(([, text]) => textWidth(text))), right = width - 14;
    const x = (value) => left + (Math.min(value, last) / last) * (right - left);
    const at_marker = data.markers.map(([call, time, name]) => {
      return [x(call >= data.calls ? last : along === "time" ? time : call), data.names[name]];
    });
    at_marker.sort((a, b) => b[0] - a[0]);
    let names;
    for (const longest of [160, 110, 75, 56]) {
      names = placed(at_marker, right + 12, longest, 3);
      if (names.length === at_marker.length) break;
    }
    // Not all names fit, so place some of them in one row.
    if (names.length < at_marker.length) names = placed(at_marker, right + 12, 110, 1);
    // Each pixel has at most one line. Close lines are paler. Lines that would fill an area are omitted.
    const lines = new Map();
    for (const [place, name] of at_marker) {
      const pixel = Math.round(place);
      lines.set(pixel, lines.get(pixel) || name === "fw_bw_boundary");
    }
    const tooClose = lines.size * 2 > right - left, opacity = lines.size * 8 > right - left ? 0.35 : 1;
    if (tooClose) names = [];
    const rows = names.reduce((most, name) => Math.max(most, name.row + 1), 0);
    const top = 8 + 17 * (tooClose ? 1 : rows), bottom = top + Math.max(200, Math.min(330, width * 0.45));
    const height = bottom + 42;
    const y = (value) => bottom - (value / most) * (bottom - top);
    const svg = document.createElementNS(namespace, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    svg.setAttribute("aria-hidden", "true");
    const line = (x1, y1, x2, y2, color, opacity = 1) =>
      add(svg, "line", { x1, y1, x2, y2, style: `stroke:var(--${color});opacity:${opacity}` });

    for (const [value, text] of ticks) {
      line(left, y(value), right, y(value), value ? "grid" : "quiet");
      add(svg, "text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, text);
    }
    bottomAxis(svg, line, x, last, right - left, bottom);
    add(svg, "text", { x: right, y: bottom + 36, "text-anchor": "end" }, along === "time" ? "time" : "operator calls");
    if (tooClose) {
      const note = count(data.marker_count) + " markers, too close to be shown";
      add(svg, "text", { x: left, y: top - 6 }, note);
    } else {
      for (const [place, boundary] of lines) {
        line(place, top, place, bottom, boundary ? "warning" : "marker", opacity);
      }
    }
    for (const { x, text, row, flipped, boundary } of names) {
      const middle = top - 17 * row - 8;
      line(x, middle - 6, x, top, boundary ? "warning" : "marker");
      const style = boundary ? "fill:var(--warning)" : "";
      add(svg, "text", { x: flipped ? x - 4 : x + 4, y: middle + 4, "text-anchor": flipped ? "end" : "start", style }, text);
    }
    for (const name of ["reserved", "active", "allocated"]) {
      if (!shown.has(name)) continue;
      let path = "";
      positions.forEach((position, index) => {
        const [px, py] = [x(position).toFixed(1), y(sample[name][index]).toFixed(1)];
        path += index ? `H${px}V${py}` : `M${px} ${py}`;
      });
      path += `H${right}`;
      if (name === "allocated") {
        add(svg, "path", { d: `${path}V${bottom}H${x(positions[0])}Z`, style: `fill:var(--${name});opacity:.14` });
      }
      add(svg, "path", { d: path, style: `fill:none;stroke:var(--${name});stroke-width:1.6;stroke-linejoin:round` });
    }
    if (withCapacity) line(left, y(data.capacity), right, y(data.capacity), "text");
    const cursor = add(svg, "g", {});
    chart.replaceChildren(svg);
    frame = { x, y, top, bottom, left, right, last, cursor, width };
    show();
  }

  function bottomAxis(svg, line, x, last, width, bottom) {
    const size = along === "call" ? 1 : last >= 1e6 ? 1e6 : last >= 1e3 ? 1e3 : 1;
    const unit = along === "call" ? "" : { 1: " µs", 1000: " ms", 1000000: " s" }[size];
    const step = round(last / size / Math.max(2, Math.floor(width / 95)), along === "call" || size === 1);
    const decimals = Math.max(0, -Math.floor(Math.log10(step)));
    for (let tick = 0; tick * step * size <= last; tick += 1) {
      const value = tick * step, text = along === "call" ? count(value) : value.toFixed(decimals) + unit;
      const place = x(value * size);
      line(place, bottom, place, bottom + 4, "quiet");
      const fits = place + textWidth(text) / 2 <= x(last) + 12;
      add(svg, "text", { x: place, y: bottom + 18, "text-anchor": fits ? "middle" : "end" }, text);
    }
  }

  /// Shows the sample under the cursor, in the figure and as text.
  function show() {
    if (!frame || at < 0) return;
    const { cursor, x, y, top, bottom } = frame, place = x(sample[along][at]);
    cursor.replaceChildren();
    add(cursor, "line", { x1: place, x2: place, y1: top, y2: bottom, style: "stroke:var(--text);stroke-dasharray:3 3" });
    for (const name of shown) {
      add(cursor, "circle", { cx: place, cy: y(sample[name][at]), r: 4, style: `fill:var(--${name});stroke:var(--background)` });
    }
    const added = sample.added[at];
    const parts = [["call", count(sample.call[at])], ["", data.names[sample.name[at]]]];
    parts.push([added < 0 ? "freed" : "added", bytes(Math.abs(added))]);
    for (const name of series) parts.push([name, bytes(sample[name][at])]);
    if (data.timed) parts.push(["at", duration(sample.time[at])]);
    tell(readout, parts);
  }

  function nearest(value) {
    const positions = sample[along];
    let low = 0, high = positions.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (positions[middle] < value) low = middle + 1; else high = middle;
    }
    // Within a pixel, the visible sample is the one with the most allocated memory.
    const reach = frame.last / (frame.right - frame.left);
    let best = low;
    if (low > 0 && value - positions[low - 1] < positions[low] - value) best = low - 1;
    for (let step = best; step >= 0 && Math.abs(positions[step] - value) <= reach; step -= 1) {
      if (sample.allocated[step] > sample.allocated[best]) best = step;
    }
    for (let step = best; step < positions.length && Math.abs(positions[step] - value) <= reach; step += 1) {
      if (sample.allocated[step] > sample.allocated[best]) best = step;
    }
    return best;
  }
  function move(to) {
    at = Math.max(0, Math.min(sample.call.length - 1, to));
    show();
  }
  function point(event) {
    if (!sample.call.length) return;
    const place = event.clientX - chart.getBoundingClientRect().left;
    move(nearest(((place - frame.left) / (frame.right - frame.left)) * frame.last));
  }
  chart.addEventListener("pointermove", point);
  chart.addEventListener("pointerdown", point);
  chart.addEventListener("keydown", (event) => {
    const page = Math.ceil(sample.call.length / 20);
    const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - page, PageDown: at + page, Home: 0, End: sample.call.length };
    if (!(event.key in steps) || !sample.call.length) return;
    event.preventDefault();
    move(steps[event.key]);
  });
  find("peak").addEventListener("click", () => move(sample.allocated.indexOf(peaks.allocated)));
  for (const input of document.querySelectorAll("input[name=series]")) {
    input.addEventListener("change", () => {
      shown = new Set(series.filter((name) => document.querySelector(`input[value=${name}]`).checked));
      draw();
    });
  }
  for (const input of document.querySelectorAll("input[name=along]")) {
    input.addEventListener("change", () => { along = input.value; draw(); });
  }
  new ResizeObserver(() => { if (!frame || Math.max(280, chart.clientWidth) !== frame.width) draw(); }).observe(chart);
  draw();
}
