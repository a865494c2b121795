// One link: in a sentence, in figures, and its last hour in 60 steps. Of a node, also its checks.

// The sentence says so if the link was not measured.
function describe(source, peer) {
  if (source === peer) return `${source} does not probe itself`;
  const place = (name) => {
    const zone = mesh.nodes.get(name)?.zone ?? 'unknown';
    return zone === 'unknown' ? name : `${name} (${zone})`;
  };
  const heading = `${place(source)} → ${place(peer)}: `, silent = mesh.missing.get(source), cells = findAll(source, peer);
  if (!mesh.at && !mesh.rows.size) return heading + 'no reports are collected; Collect now asks all agents for them';
  if (!mesh.rows.has(source)) return heading + (silent ? `${source} did not answer (${silent})` : `no report of ${source}`);
  if (!cells.some(Boolean)) {
    return `${heading}not probed, ${layerName(shown.layer)}${silent ? `; the report broke off (${silent})` : ''}`;
  }
  const more = mesh.standings.get(source) === 'starved' ? [`the agent on ${source} is starved`] : [];
  const figuresOf = cells.map((cell, i) => (cells.length > 1 ? layerName(layersShown()[i]) + ': ' : '') + figures(cell));
  return heading + [...figuresOf, ...more].join('; ');
}

function figures(cell) {
  if (!cell) return 'not probed';
  const recent = cell.recent, time = `${Math.round(recent.seconds)} s`, more = [], leaving = leaves(cell), ten = cell.ten_minutes;
  if (cell.since_unix_seconds != null && !leaving) more.push(`losing for ${lasting(now() - cell.since_unix_seconds)}`);
  if (ten?.lost && !leaving) more.push(`${percent(Math.min(1, ten.lost / ten.sent))} lost over ten minutes`);
  if (recent.send_errors) more.push(`${recent.send_errors} not sent: ${recent.send_error_reason}`);
  if (leaving) more.push(`${cell.node} is leaving: probes to it are not counted`);
  return [measured(cell)
    ? `${percent(loss(recent))} lost (${recent.lost} of ${recent.lost + recent.received} in ${time}), RTT `
      + `p50 ${seconds(recent.rtt_p50_seconds)}, p99 ${seconds(recent.rtt_p99_seconds)}`
    : `not measured in the last ${time}`, ...more].join('; ');
}

// The peer * is all peers of a node.
function openLink({ source, peer }) {
  const cells = findAll(source, peer).filter(Boolean), held = $('link-figures').contains(document.activeElement);
  const isNode = peer === '*', box = make('div', { className: 'wide' });
  keep({ from: source, to: peer });
  const back = make('button', { onclick: () => openLink({ source: peer, peer: source }) }, describe(peer, source));
  const where = cells.map((cell) => `${layerName(layerOf(cell))}: probes go to ${cell.address}; ${peer} is ${cell.state}. `).join('');
  put('link-title', isNode ? source : `${source} → ${peer}`);
  put('link-figures', ...(isNode ? [make('p', {}, 'Of all its links: the mean loss, the median of their p50, and the highest p99.'), box]
    : [make('p', {}, describe(source, peer)), make('p', { className: 'dim' }, where), ...paths(source, peer), make('p', {}, 'The other direction: ', back)]));
  if (!$('link').open) {
    put('link-hour');
    $('link').showModal();
    $('link-title').focus();
  } else if (held) {
    back.focus();
  }
  hour(source, peer);
  if (isNode) checks(source, box);
}

// The checks are in the report of the node, which is asked for if it is not collected.
async function checks(name, box) {
  try {
    const row = mesh.rows.get(name) ?? (await (await askPatiently('mesh/' + encodeURIComponent(name))).json()).rows[0];
    if (row?.checks?.length) table(box, '', CHECKS, summed([row.checks]));
  } catch ({ message }) {
    box.append(make('p', { className: 'flag' }, `The checks cannot be shown: ${message}.`));
  }
}

// What UDP and TCP show of the path. The agent has checked all types.
function paths(source, peer) {
  return layersInOrder().flatMap((layer) => {
    const cell = mesh.rows.get(source)?.layers[layer]?.get(peer) ?? {};
    const { hops, path_mtu_bytes: mtu, mtu_hole: hole, flows, trace, syn_retransmissions: again } = cell;
    const way = ({ direction }) => (WAYS[direction] ? `, ${WAYS[direction]}` : ''), facts = [];
    if (hops != null) facts.push(count(hops, 'hop'));
    for (const field of ['delay', 'delay_variation']) {
      const [there, back] = ['there', 'back'].map((way) => cell[`${field}_${way}_seconds`]);
      if ((there ?? back) != null) facts.push(`one-way ${field.replace('_', ' ')} ${seconds(there)} there, ${seconds(back)} back`);
    }
    if (mtu) facts.push(`packets up to ${number(mtu)} bytes pass`);
    if (hole) facts.push(`larger ones are lost${way(hole)} (${hole.said === 'too_big' ? 'a router says so' : 'in silence'})`);
    if (flows?.losing_count) facts.push(`${flows.losing_count} of ${flows.probed} flows lose`);
    for (const flow of flows?.losing ?? []) facts.push(`source port ${flow.source_port}: ${flow.lost} of ${flow.probes} lost${way(flow)}`);
    if (again) facts.push(`${number(again)} SYNs sent again`);
    const { source_port: port, at_unix_seconds: at, says = '', hops: by = [], sent = [], answered = [] } = trace ?? {};
    const each = by.map((hop, i) => (answered[i] < sent[i] ? `${hop} (${answered[i]} of ${sent[i]})` : hop));
    const traced = trace ? [make('br'), make('b', {}, says), ` (trace of source port ${port}, `, timed(ago(at), at), `): ${each.join(' → ')}`] : [];
    return facts.length || trace ? make('p', {}, `${layerName(layer)}: ${facts.join('; ')}`, ...traced) : [];
  });
}

async function hour(source, peer) {
  const show = (...what) => source === shown.from && peer === shown.to && put('link-hour', ...what);
  try {
    const path = [source, peer].map(encodeURIComponent).join('/');
    const { series, step_seconds: step } = await (await ask(`hour/${path}`)).json();
    const of = series.filter((one) => !shown.layer || layersShown().includes(layerOf(one)));
    show(...(of.length ? of.flatMap((one) => charts(one, step, of[1] ? ` (${layerName(layerOf(one))})` : '')) : [make('p', {}, 'Nothing is kept of this network.')]));
  } catch ({ message }) {
    show(make('p', { className: 'flag' }, `The last hour cannot be shown: ${message}.`));
  }
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Bars of loss above lines of RTT. A minute without a measurement is grey, not zero.
function charts({ loss: lost, rtt_p50_seconds: p50, rtt_p99_seconds: p99, end_unix_seconds: end }, step, whose) {
  const left = 56, high = 90, width = Math.max(260, $('link-hour').clientWidth);
  const n = lost.length, each = (width - left) / n;
  const known = (values) => values.filter((value) => value != null);
  const most = Math.max(0.05, ...known(lost)), slow = Math.max(1e-6, ...known(p99), ...known(p50));
  const word = (x, y, anchor, text) => svg('text', { x, y, 'text-anchor': anchor }, text);
  const columns = (draw) => lost.flatMap((value, i) => draw(value, i) ?? []);
  const wide = Math.max(1, each - 1);
  const column = (name, i, value = 1) =>
    svg('rect', { class: name, x: left + i * each, y: high * (1 - value), width: wide, height: high * value });
  const times = () => ['start', 'middle', 'end'].map((anchor, i) =>
    word(left + (width - left) * i / 2, high + 15, anchor, ago(end - (1 - i / 2) * n * step)));
  const path = (name, values) => svg('path', { class: name, d: values.map((value, i) => {
    const [x, y] = [left + i * each, high * (1 - value / slow)];
    return value == null ? '' : `${values[i - 1] == null ? 'M' : 'L'}${x} ${y}H${x + each}`;
  }).join('') });
  const box = { viewBox: `0 0 ${width} ${high + 20}`, role: 'img' };
  const chart = (label, top, ...drawn) => svg('svg', { ...box, 'aria-label': label },
    ...columns((value, i) => (value == null ? column('gap', i) : null)),
    svg('path', { class: 'base', d: `M${left} 0H${width}M${left} ${high}H${width}` }),
    word(left - 6, 9, 'end', top), word(left - 6, high, 'end', '0'), ...times(), ...drawn,
    ...columns((value, i) => {
      const over = column('over', i), figures = value == null ? 'not measured'
        : `${percent(value)} lost, RTT p50 ${seconds(p50[i])}, p99 ${seconds(p99[i])}`;
      over.append(svg('title', {}, `${utc(end - (n - i) * step)}: ${figures}`));
      return over;
    }));
  const bad = lost.filter((value) => value > 0), none = n - known(lost).length;
  const losses = [`${bad.length} of ${count(n, 'minute')} with loss`];
  if (bad.length) losses.push(`at most ${percent(Math.max(...bad))}`);
  if (none) losses.push(`${none} not measured`);
  const [least, highest] = [Math.min(...known(p50)), Math.max(...known(p50))].map(seconds);
  const range = known(p50).length ? `p50 (line) ${least} to ${highest}, p99 (dashes) at most ${seconds(slow)}` : 'none';
  const grade = (value) => 'bar' + LOSS.findIndex((bound) => value <= bound);
  const bars = columns((value, i) => (value ? column(grade(value), i, value / most) : null));
  const titled = (name, facts, ...drawn) => [
    make('h3', {}, `${name}${whose}: `, make('span', { className: 'dim' }, facts)), chart(`${name}${whose}: ${facts}`, ...drawn)];
  return [...titled('Loss', losses.join(', '), percent(most), ...bars),
    ...titled('RTT', range, seconds(slow), path('p50', p50), path('p99', p99))];
}

$('link').onclick = (event) => event.target === $('link') && $('link').close();
// The event comes a turn after the dialog closes: another link may be open by then.
$('link').onclose = () => {
  if ($('link').open) return;
  keep({ from: '', to: '' });
  map.focus({ preventScroll: true });
};
