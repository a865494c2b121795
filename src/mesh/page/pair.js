// One pair: in a sentence, in figures, and its last hour in 60 steps.

// What was not measured is said to be so.
function describe(source, peer) {
  if (source === peer) return `${source} does not probe itself`;
  const place = (name) => {
    const zone = mesh.nodes.get(name)?.zone ?? 'unknown';
    return zone === 'unknown' ? name : `${name} (${zone})`;
  };
  const pair = `${place(source)} → ${place(peer)}: `, silent = mesh.missing.get(source), cell = find(source, peer);
  if (!mesh.rows.has(source)) return pair + (silent ? `${source} did not answer (${silent})` : `no row of ${source}`);
  if (!cell) return `${pair}not probed, ${layerName(shown.layer)}${silent ? `; the row broke off (${silent})` : ''}`;
  const recent = cell.recent, time = `${Math.round(recent.seconds)} s`, more = [];
  if (cell.since_unix_seconds != null) more.push(`losing ${since(cell.since_unix_seconds)}`);
  if (DRAINING[cell.state]) more.push(`${peer} ${DRAINING[cell.state]}: probes to it are not counted`);
  const own = mesh.nodes.get(source).lag;
  if (own.length) more.push(`${source} itself ${own.join(', ')}`);
  const figures = measured(cell)
    ? `${percent(loss(recent))} lost (${recent.lost} of ${recent.lost + recent.received} in ${time}), RTT `
      + `p50 ${seconds(recent.rtt_p50_seconds)}, p99 ${seconds(recent.rtt_p99_seconds)}`
    : `not measured in the last ${time}`;
  return pair + [figures, ...more].join('; ');
}

function openPair({ source, peer }) {
  const cell = find(source, peer), recent = cell?.recent, held = $('pair-figures').contains(document.activeElement);
  shown.pair = { source, peer };
  const say = { loss: (of) => (of.lost + of.received ? percent(loss(of)) : '-') };
  const rows = ['sent', 'received', 'lost', 'late', 'loss', 'rtt_p50_seconds', 'rtt_p99_seconds'].map((field) => {
    const show = say[field] ?? ((of) => (field.endsWith('_seconds') ? seconds(of[field]) : number(of[field])));
    const name = { rtt_p50_seconds: 'RTT p50', rtt_p99_seconds: 'RTT p99', late: 'answered late' }[field] ?? field;
    return cell && make('tr', {}, make('th', { scope: 'row' }, name), ...[recent, cell].map((of) => make('td', { className: 'number' }, show(of))));
  });
  const heads = ['', `last ${Math.round(recent?.seconds)} s`, 'since start'];
  const table = cell ? [make('table', {}, make('tr', {}, ...heads.map((head) => make('th', { className: 'number' }, head))), ...rows)] : [];
  const back = make('button', { type: 'button', onclick: () => openPair({ source: peer, peer: source }) }, describe(peer, source));
  const where = cell ? `${layerName(shown.layer)}: probes go to ${cell.address}; ${peer} is ${cell.state}.` : '';
  $('pair-title').textContent = `${source} → ${peer}`;
  $('pair-figures').replaceChildren(make('p', {}, describe(source, peer)), make('p', { className: 'dim' }, where), ...table,
    make('p', {}, 'The other way: ', back));
  if (!$('pair').open) {
    $('pair-hour').replaceChildren();
    $('pair').showModal();
    $('pair-title').focus();
  } else if (held) {
    back.focus();
  }
  hour(shown.pair);
}

async function hour(asked) {
  const tell = (...what) => asked === shown.pair && $('pair-hour').replaceChildren(...what);
  try {
    const path = [asked.source, asked.peer].map(encodeURIComponent).join('/');
    const answer = await fetch(`api/v1/hour/${path}`, { cache: 'no-store', signal: AbortSignal.timeout(PATIENCE) });
    if (answer.status === 404) {
      const full = mesh.rows.get(asked.source)?.source.hour_kept === false;
      const why = full ? `: ${asked.source} has more peers than an agent keeps hours of` : '';
      return tell(make('p', {}, `The last hour of this pair is not kept${why}.`));
    }
    if (!answer.ok) throw new Error(`the canary answers ${answer.status}`);
    const { series, step_seconds: step } = await answer.json();
    const of = series.filter((one) => `${one.network} ${one.protocol}` === shown.layer);
    tell(...of.flatMap((one) => charts(one, step)), ...(of.length ? [] : [make('p', {}, 'Nothing is kept of this network.')]));
  } catch (error) {
    tell(make('p', { className: 'flag' }, `The last hour did not come: ${error.message}.`));
  }
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) set(made, name, value);
  made.append(...children);
  return made;
}

// Bars of loss above lines of RTT; a minute without a measurement is grey, not zero.
function charts({ loss: lost, rtt_p50_seconds: p50, rtt_p99_seconds: p99, end_unix_seconds: end }, step) {
  const n = lost.length, left = 56, high = 90, width = Math.max(260, $('pair-hour').clientWidth), each = (width - left) / n;
  const known = (values) => values.filter((value) => value != null);
  const most = Math.max(0.05, ...known(lost)), slow = Math.max(1e-6, ...known(p99), ...known(p50));
  const columns = (draw) => lost.flatMap((value, i) => draw(value, i) ?? []);
  const column = (name, i, value = 1) =>
    svg('rect', { class: name, x: left + i * each, width: Math.max(1, each - 1), y: high * (1 - value), height: high * value });
  const word = (x, y, anchor, text) => svg('text', { x, y, 'text-anchor': anchor }, text);
  const path = (name, values) => svg('path', { class: name, d: values.map((value, i) => {
    const [x, y] = [left + i * each, high * (1 - value / slow)];
    return value == null ? '' : `${values[i - 1] == null ? 'M' : 'L'}${x} ${y}H${x + each}`;
  }).join('') });
  const chart = (label, top, ...drawn) => svg('svg', { viewBox: `0 0 ${width} ${high + 20}`, role: 'img', 'aria-label': label },
    ...columns((value, i) => (value == null ? column('gap', i) : null)),
    svg('path', { class: 'base', d: `M${left} 0H${width}M${left} ${high}H${width}` }),
    word(left - 6, 9, 'end', top), word(left - 6, high, 'end', '0'),
    ...['start', 'middle', 'end'].map((anchor, i) => word(left + (width - left) * i / 2, high + 15, anchor, clock(end - (1 - i / 2) * n * step))),
    ...drawn,
    ...columns((value, i) => {
      const over = column('over', i), figures = value == null ? 'not measured'
        : `${percent(value)} lost, RTT p50 ${seconds(p50[i])}, p99 ${seconds(p99[i])}`;
      over.append(svg('title', {}, `${clock(end - (n - i) * step)}: ${figures}`));
      return over;
    }));
  const bad = lost.filter((value) => value > 0).length, none = n - known(lost).length;
  const losses = `${bad} of ${count(n, 'minute')} with loss${bad ? `, at most ${percent(Math.max(...known(lost)))}` : ''}`
    + (none ? `, ${none} not measured` : '');
  const range = known(p50).length
    ? `p50 (line) ${seconds(Math.min(...known(p50)))} to ${seconds(Math.max(...known(p50)))}, p99 (dashes) at most ${seconds(slow)}` : 'none';
  const bars = columns((value, i) => (value ? column(`bar${LOSS.findIndex((bound) => value <= bound)}`, i, value / most) : null));
  return [make('h3', {}, 'Loss: ', make('span', { className: 'dim' }, losses)), chart(`Loss: ${losses}`, percent(most), ...bars),
    make('h3', {}, 'RTT: ', make('span', { className: 'dim' }, range)), chart(`RTT: ${range}`, seconds(slow), path('p50', p50), path('p99', p99))];
}

$('pair').onclick = (event) => event.target === $('pair') && $('pair').close();
$('pair').onclose = () => {
  shown.pair = null;
  map.focus({ preventScroll: true });
};
