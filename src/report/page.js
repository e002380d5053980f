'use strict'
// Values under the pointer, read from the drawn lines.
const tip = document.getElementById('tip')
const numbers = text => text.split(' ').map(Number)

function values(svg, x) {
  const [firstStep, lastStep, left, right] = numbers(svg.dataset.x)
  const [low, high, bottom, top] = numbers(svg.dataset.y)
  const isLog = svg.dataset.y.endsWith('log')
  const said = []
  for (const path of svg.querySelectorAll('path[data-name]')) {
    let nearest = null
    for (const place of path.getAttribute('d').slice(1).split('L')) {
      const point = numbers(place)
      if (!nearest || Math.abs(point[0] - x) < Math.abs(nearest[0] - x)) nearest = point
    }
    const step = firstStep + (nearest[0] - left) / (right - left) * (lastStep - firstStep)
    const share = (nearest[1] - bottom) / (top - bottom)
    const value = isLog ? low * Math.pow(high / low, share) : low + share * (high - low)
    said.push(`${path.dataset.name}: ${Number(value.toPrecision(3))} at step ${Math.round(step)}`)
  }
  return said
}

function show(event) {
  const svg = event.target.closest && event.target.closest('svg.chart')
  tip.hidden = !svg
  if (!svg) return
  const box = svg.getBoundingClientRect()
  const lines = values(svg, (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width)
  tip.replaceChildren(...lines.map(line => Object.assign(document.createElement('p'), { textContent: line })))
  const wide = tip.offsetWidth
  const left = event.clientX + 16 + wide > innerWidth ? event.clientX - 16 - wide : event.clientX + 16
  tip.style.left = `${Math.max(4, left)}px`
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 4))}px`
}
addEventListener('pointermove', show)
addEventListener('pointerdown', show)
addEventListener('scroll', () => { tip.hidden = true }, { passive: true })

// A page that is served asks for itself again. What the reader has opened stays open, and the page stays in place.
let seen = null
async function refresh() {
  if (document.hidden) return
  const state = text => { document.getElementById('state').textContent = text }
  try {
    const answer = await fetch(location.href, { cache: 'no-store' })
    const text = await answer.text()
    if (!answer.ok) return state(text)
    if (text !== seen) {
      seen = text
      const next = new DOMParser().parseFromString(text, 'text/html').querySelector('main')
      const open = [...document.querySelectorAll('details')].map(details => details.open)
      next.querySelectorAll('details').forEach((details, index) => { details.open = open[index] === true })
      const scale = document.querySelector('.switch input:checked')
      const same = scale && next.querySelector(`#${scale.id}`)
      if (same) same.checked = true
      const aside = [...document.querySelectorAll('.wide')].map(wide => wide.scrollLeft)
      const top = scrollY
      document.querySelector('main').replaceWith(next)
      document.querySelectorAll('.wide').forEach((wide, index) => { wide.scrollLeft = aside[index] || 0 })
      scrollTo(0, top)
    }
    state('Live')
  } catch {
    state('Nobody answers: the page stays as it is')
  }
}
if (document.body.hasAttribute('data-live')) {
  refresh()
  setInterval(refresh, 2000)
}
