/**
 * Pushes offers to devices: again and again until the device acknowledges, the offer is over, or its delivery term
 * has passed. A first push comes from a notice; what no notice brought, or no device acknowledged, the slow look
 * into the records finds.
 */
import type { Socket } from 'socket.io';
import { regionOf } from '../leasing/ids.ts';
import { TakenBackError } from '../leasing/group-commit.ts';
import type { Leasing } from '../leasing/leasing.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { TermClaim } from '../leasing/transitions.ts';
import type { OfferMessage } from './notices.ts';

export interface Push {
  readonly offer: OfferMessage;
  /**
   * The device has acknowledged; resolves once that is in the records, or was refused there, or needn't be there any more. Null
   * again when it couldn't be recorded.
   */
  receipt: Promise<void> | null;
  /** No push of these follows. */
  isOver: boolean;
}

/** Before the driver's answer: its receipt may be on its way to the same rows, so after it and not beside it. */
export async function endPush(push: Push): Promise<void> {
  await push.receipt;
  push.isOver = true;
}

/**
 * Accepts an offer that may have been pushed here. Its receipt is left out if it isn't on its way to the records yet; when
 * the accept fails, the offer may then be pushed again.
 */
export async function acceptPushed<Answer>(
  leasing: Leasing,
  push: Push | null,
  region: number,
  claim: TermClaim,
  accept: () => Promise<Answer>,
): Promise<Answer> {
  if (push?.offer.offerId !== claim.offerId) return accept();
  if (!leasing.leaveOutReceipt(region, claim)) {
    await endPush(push);
    return accept();
  }
  try {
    return await accept();
  } catch (error) {
    push.receipt = null;
    push.isOver = true;
    throw error;
  }
}

export interface PushTerms {
  readonly retryMs: number;
  /** No push starts later than this after the first. */
  readonly untilMs: number;
}

export function pushOffer(
  { leasing, metrics }: { readonly leasing: Leasing; readonly metrics: Metrics },
  socket: Socket,
  driverId: string,
  push: Push,
  terms: PushTerms,
): void {
  const startedAtMs = performance.now();
  const { offer } = push;
  const { offerId, leaseToken } = offer;
  const send = (kind: 'first' | 'again'): void => {
    metrics.pushes.inc({ kind });
    socket.timeout(terms.retryMs).emit('offer', offer, (error: Error | null) => {
      if (push.isOver || push.receipt !== null) return;
      if (error === null) push.receipt = receive();
      else sendAgain();
    });
  };
  const sendAgain = (): void => {
    if (socket.connected && performance.now() - startedAtMs < terms.untilMs) send('again');
    else push.isOver = true;
  };
  const receive = async (): Promise<void> => {
    try {
      // By its id: the driver may have moved to another region since he connected.
      const { refused } = await leasing.receivedUnlessAccepted(regionOf(offerId)!, { offerId, leaseToken, driverId });
      if (refused === 'busy') notRecorded();
      else if (refused !== null) socket.emit('offer:withdrawn', { offerId, reason: refused });
    } catch (error) {
      if (!(error instanceof TakenBackError)) notRecorded();
    }
  };
  /** The offer is pushed again, after the pause that a silent device gets as well, or lapses. */
  const notRecorded = (): void => {
    push.receipt = null;
    setTimeout(() => {
      if (!push.isOver) sendAgain();
    }, terms.retryMs);
  };
  send('first');
}
