// The map is one canvas as large as the visible part of a scrolled box, for 9 links and for
// 90,000. Each cell is painted as one pixel and enlarged, so a frame costs a few blits. Lengths
// are device pixels, so that edges are crisp. Cells that were not measured have no colour:
// hatching shows through.

const map = $('map'), canvas = $('canvas'), pen = canvas.getContext('2d'), cells = make('canvas');
const SIZES = [3, 4, 6, 8, 11, 16, 24, 36, 56, 88, 132];
const LOSS = [0, 0.02, 0.05, 0.15, 0.5, 1];
const RTT = [50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 10e-3, Infinity];
// Colour numbers that stand for a state and not for a value.
const UNKNOWN = -1, LEAVING = -2, NEVER = -3, ALL_LOST = RTT.length;
const view = { frame: 0, stale: true, zoom: 0, size: 3, cursor: [0, 0], hover: null, focused: false };
view.rows = view.columns = axis([], 1, 0);
let d = 1;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name);
const limit = (value, least, most) => Math.max(least, Math.min(value, most));

// ---- layout ----

// Positions of the nodes along one axis, with a gap between zones.
function axis(nodes, size, gap) {
  const starts = [], zones = [];
  let at = 0;
  nodes.forEach(({ zone }, i) => {
    if (zones.at(-1)?.name !== zone) {
      if (i) at += gap;
      zones.push({ name: zone, from: i, start: at });
    }
    starts.push(at);
    at += size;
    Object.assign(zones.at(-1), { to: i + 1, end: at });
  });
  return { nodes, size, starts, zones, length: at };
}

const indexAt = ({ starts, size }, at) => starts.findIndex((start) => at >= start && at < start + size);
const visible = ({ starts, size }, from, length) =>
  [...starts.keys()].filter((i) => starts[i] + size > from && starts[i] < from + length);
const title = ({ name }) => name + (mesh.standings.has(name) ? ` (${mesh.standings.get(name)})` : '');

function layout() {
  const all = [...mesh.nodes.values()].sort((a, b) => inOrder(a.zone, b.zone) || inOrder(a.name, b.name)), { part } = mesh;
  const known = all.filter(({ name }) => !part.pair || part.columns.includes(name));
  // Nodes that are leaving, and nodes that are not collected, have no report to wait for.
  const sources = all.filter(({ name }) => (part.pair ? part.rows.includes(name)
    : mesh.rows.has(name) || mesh.missing.has(name) || !(mesh.standings.has(name) || mesh.notCollected)));
  const n = Math.max(1, known.length), zones = new Set(known.map(({ zone }) => zone)).size, wide = map.clientWidth * d;
  pen.font = view.font = `${12 * d}px system-ui, sans-serif`;
  const widest = Math.max(70 * d, ...known.map((node) => pen.measureText(n > 40 ? node.name : title(node)).width));
  const label = Math.ceil(Math.min(widest + 12 * d, 190 * d, wide * 0.36));
  view.band = zones > 1 ? Math.round(18 * d) : 0;
  view.left = label + view.band;
  const gap = Math.round(4 * d), height = (innerHeight * 0.8 - 60) * d / Math.max(1, sources.length);
  // As wide as the room and as high as the screen, but never too small to point at.
  const fit = limit((wide - view.left - gap * zones) / n, 3 * d, Math.min(132 * d, Math.max(height * 2, 14 * d)));
  view.size = view.zoom || fit / d;
  const size = Math.max(1, Math.floor(view.size * d));
  view.upright = size < label;
  view.named = size >= 11 * d;
  view.top = view.band + Math.round(!view.named ? 20 * d : view.upright ? Math.min(label, 150 * d) : 22 * d);
  view.columns = axis(known, size, gap);
  view.rows = axis(sources, size > 26 * d ? Math.round(limit(size / 2, 26 * d, 48 * d)) : size, gap);
  view.cursor = [limit(view.cursor[0], 0, Math.max(0, sources.length - 1)), limit(view.cursor[1], 0, n - 1)];
  const width = (view.left + view.columns.length) / d + 2, high = (view.top + view.rows.length) / d + 2;
  $('extent').style.cssText = `width:${width}px;height:${high}px`;
  map.style.height = Math.min(high + (width > map.clientWidth ? 18 : 0), innerHeight * 0.85) + 'px';
}

// The part of the map that a verdict is about: ranges of rows and of columns. A mesh, a partition
// or a path has no part, and of a check it is where it fails. A probe lost in either direction
// shows as lost in the row of its source.
function places({ kind, subject, members }) {
  if (['mesh', 'partition', 'paths'].includes(kind) || subject === '*') return [];
  const any = () => true, called = (name) => (node) => (kind.startsWith('zone') ? node.zone : node.name) === name;
  const ranges = ({ nodes }, are) => nodes.reduce((found, node, i) => {
    if (!are(node)) return found;
    if (found.at(-1)?.[1] === i) found.at(-1)[1] += 1;
    else found.push([i, i + 1]);
    return found;
  }, []);
  const links = (sources, peers) => ranges(view.rows, sources).flatMap((row) =>
    ranges(view.columns, peers).map((column) => [row, column]));
  if (['link', 'zone_pair', 'flow'].includes(kind) || kind === 'mtu' && subject.includes('->')) {
    const [a, b] = subject.split('->').map(called);
    return [...links(a, b), ...links(b, a)];
  }
  if (kind === 'check') return links(({ name, zone }) => [name, zone].includes(subject.split('->')[0]), any);
  const are = kind === 'domain' ? ({ name }) => members?.[0].includes(name) : called(subject);
  return [...(['node', 'zone', 'domain', 'mtu'].includes(kind) ? links(any, are) : []), ...links(are, any)];
}

// ---- colours ----

// The number of a link's colour in the current palette.
function rank(peer, source) {
  // A report that did not arrive, or broke off, says nothing about the link.
  if (!peer) return mesh.rows.has(source.name) && !mesh.missing.has(source.name) ? NEVER : UNKNOWN;
  if (leaves(peer)) return LEAVING;
  if (!measured(peer)) return UNKNOWN;
  if (shown.measure === 'loss') return LOSS.findIndex((bound) => loss(peer.recent) <= bound);
  return peer.recent.received ? RTT.findIndex((bound) => peer.recent[shown.measure] <= bound) : ALL_LOST;
}

function figure(peer) {
  if (!peer) return 'not probed';
  if (leaves(peer)) return 'leaving';
  if (!measured(peer)) return 'no data';
  if (shown.measure === 'loss') return percent(loss(peer.recent));
  return peer.recent.received ? seconds(peer.recent[shown.measure]) : 'all lost';
}

const paletteNames = () =>
  shown.measure === 'loss' ? LOSS.map((_, i) => 'loss' + i) : [...RTT.map((_, i) => 'rtt' + i), 'loss5'];

// Names what occurs on the map.
function legend(seen) {
  const words = shown.measure === 'loss' ? LOSS.map((bound) => (bound ? '≤ ' + percent(bound) : 'no loss'))
    : [...RTT.map((bound, i) => (bound < 1 ? '≤ ' + seconds(bound) : '> ' + seconds(RTT[i - 1]))), 'all lost'];
  put('legend', ...[
    ...paletteNames().map((name, i) => [i, words[i], '', name]),
    [NEVER, 'not probed', '', 'face'], [UNKNOWN, 'no data', 'unprobed'], [LEAVING, 'leaving', '', 'leaving'],
    ['silent', 'no report of the source', 'silent'], ['self', 'itself', '', 'self'],
  ].filter(([kind]) => seen.has(kind)).map(([, text, className, name]) => {
    const swatch = make('i', { className });
    if (name) swatch.style.background = `var(--${name})`;
    return make('li', {}, swatch, text);
  }));
}

function paint() {
  const rows = view.rows.nodes, columns = view.columns.nodes;
  // The bytes of a pixel are in the order red, green, blue, opacity.
  const code = (hex) => parseInt(hex.slice(5, 7) + hex.slice(3, 5) + hex.slice(1, 3), 16) + 0xff000000;
  // Colours of values, and of the states.
  const tones = { ...paletteNames().map(color), [LEAVING]: color('leaving'), [NEVER]: color('face') };
  const self = code(color('self')), codes = {}, many = layersShown().length;
  for (const number in tones) codes[number] = code(tones[number]);
  // Two networks share a cell: the pods' network is its left half.
  cells.width = Math.max(1, columns.length * many);
  cells.height = Math.max(1, rows.length);
  const image = new ImageData(cells.width, cells.height), pixels = new Uint32Array(image.data.buffer);
  const seen = new Set();
  rows.forEach((source, y) => {
    const layers = layersShown().map((layer) => mesh.rows.get(source.name)?.layers[layer]);
    columns.forEach((peer, x) => layers.forEach((peers, half) => {
      const number = rank(peers?.get(peer.name), source), at = y * cells.width + x * many + half;
      if (source === peer) pixels[at] = self;
      else if (number !== UNKNOWN) pixels[at] = codes[number];
      seen.add(source === peer ? 'self' : number === UNKNOWN && !mesh.rows.has(source.name) ? 'silent' : number);
    }));
  });
  legend(seen);
  cells.getContext('2d').putImageData(image, 0, 0);
}

// Lines on transparent ground: slanted for an unknown link, upright for a missing report.
function hatch(upright) {
  const n = Math.round((upright ? 4 : 6) * d), tile = make('canvas', { width: n, height: n });
  const ink = tile.getContext('2d');
  ink.strokeStyle = color(upright ? 'silent' : 'hatch');
  ink.lineWidth = upright ? 2 * d : d;
  for (const shift of upright ? [n / 2] : [-n, 0, n]) {
    ink.moveTo(shift, n);
    ink.lineTo(upright ? shift : shift + n, 0);
  }
  ink.stroke();
  return pen.createPattern(tile, 'repeat');
}

// ---- a frame ----

function fill(style, x, y, width, height) {
  pen.fillStyle = style;
  pen.fillRect(x, y, width, height);
}

function write(text, style, x, y, most, align = 'center') {
  pen.fillStyle = style;
  pen.textAlign = align;
  pen.fillText(text, x, y, most);
}

function inside(x, y, width, height, work) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  work();
  pen.restore();
}

function draw() {
  view.frame = 0;
  if (!map.clientWidth) return;
  d = devicePixelRatio;
  if (view.stale) {
    layout();
    paint();
    view.stale = false;
  }
  const width = Math.round(map.clientWidth * d), height = Math.round(map.clientHeight * d);
  if (canvas.width !== width || canvas.height !== height) {
    Object.assign(canvas, { width, height });
    canvas.style.cssText = `width:${width / d}px;height:${height / d}px`;
  }
  const { rows, columns, left, top } = view, back = color('back');
  const x = left - Math.round(map.scrollLeft * d), y = top - Math.round(map.scrollTop * d);
  const seen = { x, y, width, height, back, here: current(),
    across: visible(columns, left - x, width - left), down: visible(rows, top - y, height - top) };
  pen.font = view.font;
  pen.textBaseline = 'middle';
  pen.imageSmoothingEnabled = false;
  fill(back, 0, 0, width, height);
  inside(left, top, width, height, () => {
    drawCells(seen);
    if (columns.size >= (layersShown()[1] ? 88 : 46) * d) drawFigures(seen);
    const chosen = mesh.said?.verdicts.find(({ id }) => id === shown.verdict);
    for (const place of chosen ? places(chosen) : []) outline(place, seen, 'mark', 3);
    const [row, column] = seen.here ?? [];
    for (const [style, thick] of seen.here ? [['back', 5], ['text', 2.5]] : []) {
      outline([[row, row + 1], [column, column + 1]], seen, style, thick);
    }
  });
  inside(0, top, left, height, () => drawSources(seen));
  inside(left, 0, width, top, () => drawPeers(seen));
  if (view.band) drawZones(seen);
  write('from ↓ to →', color('dim'), left - 6 * d, top - 10 * d, left - view.band - 6 * d, 'right');
}

function drawCells({ x, y, width, height, back, across, down }) {
  const { rows, columns, left, top } = view, unknown = hatch(false), silent = hatch(true);
  for (const v of rows.zones) {
    for (const h of columns.zones) {
      const wide = h.end - h.start, place = [x + h.start, y + v.start, wide, v.end - v.start];
      fill(unknown, ...place);
      for (const i of down.filter((row) => row >= v.from && row < v.to && !mesh.rows.has(rows.nodes[row].name))) {
        fill(back, x + h.start, y + rows.starts[i], wide, rows.size);
        fill(silent, x + h.start, y + rows.starts[i], wide, rows.size);
      }
      const many = layersShown().length;
      pen.drawImage(cells, h.from * many, v.from, (h.to - h.from) * many, v.to - v.from, ...place);
    }
  }
  if (columns.size < 6 * d) return;
  for (const i of across) fill(back, x + columns.starts[i] + columns.size - 1, top, 1, height);
  for (const i of down) fill(back, left, y + rows.starts[i] + rows.size - 1, width, 1);
}

function drawFigures({ x, y, back, across, down }) {
  const { rows, columns } = view, text = color('text');
  for (const i of down) {
    const source = rows.nodes[i], row = mesh.rows.get(source.name);
    for (const j of across.filter((column) => columns.nodes[column] !== source)) {
      const words = row ? findAll(source.name, columns.nodes[j].name).map(figure).join(' | ') : 'no report';
      const cx = x + columns.starts[j] + columns.size / 2, cy = y + rows.starts[i] + rows.size / 2;
      const wide = Math.min(columns.size - 2, pen.measureText(words).width + 8 * d);
      fill(back, cx - wide / 2, cy - 9 * d, wide, 18 * d);
      write(words, text, cx, cy, columns.size - 4 * d);
    }
  }
}

function outline([[r0, r1], [c0, c1]], { x, y }, style, thick) {
  const length = ({ starts, size }, from, to) => starts[to - 1] + size - starts[from];
  const { rows, columns } = view;
  pen.strokeStyle = color(style);
  pen.lineWidth = thick * d;
  pen.strokeRect(x + columns.starts[c0], y + rows.starts[r0], length(columns, c0, c1), length(rows, r0, r1));
}

// The name of a node in a box of the margin.
function nameTag(node, strong, back, x, y, width, height) {
  inside(x, y, width, height, () => {
    fill(strong ? color('mark') : back, x, y, width, height);
    const doubtful = mesh.standings.has(node.name);
    if (doubtful) pen.font = 'italic ' + view.font;
    const style = strong ? back : color(doubtful ? 'dim' : 'text');
    if (height <= width) {
      const [end, align] = x < view.left ? [x + width - 6 * d, 'right'] : [x + width / 2, 'center'];
      return write(title(node), style, end, y + height / 2, width - 8 * d, align);
    }
    pen.translate(x + width / 2, y + height - 5 * d);
    pen.rotate(-Math.PI / 2);
    write(title(node), style, 0, 0, height - 6 * d, 'left');
  });
}

// Names where they fit, and the name of the current row at any size.
function drawSources({ y, back, down, here }) {
  const { rows, band, named, left } = view;
  const tag = (i, high, strong) =>
    nameTag(rows.nodes[i], strong, back, band, y + rows.starts[i] - (high - rows.size) / 2, left - band, high);
  for (const i of named ? down : []) tag(i, rows.size, here?.[0] === i);
  if (here && !named) tag(here[0], 18 * d, true);
}

function drawPeers({ x, width, back, across, here }) {
  const { columns, left, band, named, top } = view;
  for (const i of named ? across : []) nameTag(columns.nodes[i], here?.[1] === i, back, x + columns.starts[i], band, columns.size, top - band);
  if (!here || named) return;
  const node = columns.nodes[here[1]], wide = pen.measureText(title(node)).width + 12 * d;
  const from = limit(x + columns.starts[here[1]] - wide / 2, left, width - wide);
  nameTag(node, true, back, from, band, wide, top - band - 2 * d);
}

function drawZones({ x, y, width, height }) {
  const { rows, columns, left, top, band } = view;
  const zone = (name, from, to) => {
    if (to <= from) return;
    fill(color('line'), from, 0, to - from, band - 2 * d);
    if (to - from > 24 * d) write(name, color('text'), (from + to) / 2, band / 2 - d, to - from - 6 * d);
  };
  for (const { name, start, end } of columns.zones) zone(name, Math.max(left, x + start), Math.min(width, x + end));
  pen.save();
  pen.translate(0, height);
  pen.rotate(-Math.PI / 2);
  for (const { name, start, end } of rows.zones) {
    zone(name, Math.max(0, height - y - end), Math.min(height - top, height - y - start));
  }
  pen.restore();
}

// Requests a repaint: of all cells if `stale`, otherwise of the frame only.
function redraw(stale = true) {
  view.stale ||= stale;
  view.frame ||= requestAnimationFrame(draw);
}

// ---- input ----

function current() {
  const here = view.hover ?? (view.focused ? view.cursor : null);
  return here && here[0] < view.rows.nodes.length && here[1] < view.columns.nodes.length ? here : null;
}

const linkAt = ([row, column]) => ({ source: view.rows.nodes[row].name, peer: view.columns.nodes[column].name });

// A screen reader announces the result of key presses, not what the mouse passes over.
function say(aloud) {
  const here = current();
  if (!here) return;
  const { source, peer } = linkAt(here);
  $('here').ariaLive = aloud ? 'polite' : 'off';
  put('here', describe(source, peer));
}

function moveTo(row, column) {
  const { rows, columns } = view;
  if (!rows.nodes.length) return;
  view.hover = null;
  view.cursor = [limit(row, 0, rows.nodes.length - 1), limit(column, 0, columns.nodes.length - 1)];
  const into = ({ starts, size }, i, from, length) => limit(from * d, starts[i] + size + 2 - length * d, starts[i]) / d;
  map.scrollTop = into(rows, view.cursor[0], map.scrollTop, map.clientHeight - view.top / d);
  map.scrollLeft = into(columns, view.cursor[1], map.scrollLeft, map.clientWidth - view.left / d);
  say(true);
  redraw(false);
}

// Skips links that are not probed, up to the next one that is.
function step(down, right, far) {
  const { rows, columns } = view;
  let [row, column] = view.cursor;
  do [row, column] = [row + down, column + right];
  while (far && rows.nodes[row] && columns.nodes[column] && !find(rows.nodes[row].name, columns.nodes[column].name));
  if (!far || (rows.nodes[row] && columns.nodes[column])) moveTo(row, column);
}

// Goes to the next link with loss in reading order; after the last it starts from the first.
function nextLoss() {
  const { rows, columns, cursor } = view, wide = columns.nodes.length, all = rows.nodes.length * wide;
  for (let step = 1; step <= all; step++) {
    const at = (cursor[0] * wide + cursor[1] + step) % all, row = Math.floor(at / wide);
    const lossy = (peer) => peer && measured(peer) && peer.recent.lost;
    if (findAll(rows.nodes[row].name, columns.nodes[at % wide].name).some(lossy)) return moveTo(row, at % wide);
  }
}

function reveal(verdict) {
  if (!map.clientWidth) return;
  draw();
  const [place] = places(verdict);
  if (place) moveTo(place[0][0], place[1][0]);
  map.scrollIntoView({ block: 'nearest' });
}

function zoom(by) {
  const next = by > 0 ? SIZES.find((size) => size > view.size) : SIZES.findLast((size) => size < view.size);
  view.zoom = by && (next ?? view.size);
  redraw();
}

function point({ offsetX, offsetY }) {
  const x = offsetX * d - view.left, y = offsetY * d - view.top;
  const here = [indexAt(view.rows, y + map.scrollTop * d), indexAt(view.columns, x + map.scrollLeft * d)];
  return x < 0 || y < 0 || here[0] < 0 || here[1] < 0 ? null : here;
}

canvas.onpointermove = (event) => {
  const here = point(event);
  if (String(here) === String(view.hover)) return;
  view.hover = here;
  say(false);
  redraw(false);
};
canvas.onpointerleave = () => {
  view.hover = null;
  redraw(false);
};
canvas.onclick = (event) => {
  const here = point(event);
  if (!here) return;
  view.cursor = here;
  openLink(linkAt(here));
};
map.onfocus = () => {
  view.focused = true;
  say(true);
  redraw(false);
};
map.onblur = () => {
  view.focused = false;
  redraw(false);
};
map.onscroll = () => redraw(false);
map.onkeydown = (event) => {
  const [row, column] = view.cursor, far = event.ctrlKey;
  const go = (down, right) => () => step(down, right, event.shiftKey);
  const act = event.altKey || event.metaKey ? null : {
    ArrowUp: go(-1, 0), ArrowDown: go(1, 0), ArrowLeft: go(0, -1), ArrowRight: go(0, 1),
    PageUp: () => moveTo(row - 10, column), PageDown: () => moveTo(row + 10, column),
    Home: () => moveTo(far ? 0 : row, 0), End: () => moveTo(far ? Infinity : row, Infinity),
    n: nextLoss, '+': () => zoom(1), '-': () => zoom(-1), 0: () => zoom(0),
    Enter: () => view.rows.nodes.length && openLink(linkAt(view.cursor)),
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
};
matchMedia('(prefers-color-scheme: dark)').onchange = () => redraw();
onresize = () => redraw();
new ResizeObserver(() => redraw()).observe(map);

controls();
turn();
