/**
 * Pushes offers to devices: again and again until the device acknowledges, the offer is over, or its delivery term
 * has passed. A first push comes from a notice; what no notice brought, or no device acknowledged, the slow look
 * into the records finds.
 */
import type { Socket } from 'socket.io';
import { TakenBackError } from '../leasing/group-commit.ts';
import type { Leasing } from '../leasing/leasing.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { TermClaim } from '../leasing/transitions.ts';
import type { OfferMessage } from './notices.ts';

export interface Push {
  readonly offer: OfferMessage;
  /** Resolves once the device's acknowledgement is in the records, or was refused there, or needn't be there any more. */
  receipt: Promise<void> | null;
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
  { region, push }: { readonly region: number; readonly push: Push | null },
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
  driver: { readonly driverId: string; readonly region: number },
  push: Push,
  terms: PushTerms,
): void {
  const startedAtMs = performance.now();
  const { offer } = push;
  const send = (kind: 'first' | 'again'): void => {
    metrics.pushes.inc({ kind });
    socket.timeout(terms.retryMs).emit('offer', offer, (error: Error | null) => {
      if (push.isOver) return;
      if (error === null) {
        push.isOver = true;
        push.receipt = receive();
      } else if (socket.connected && performance.now() - startedAtMs < terms.untilMs) {
        send('again');
      } else {
        push.isOver = true;
      }
    });
  };
  const receive = async (): Promise<void> => {
    try {
      const { refused } = await leasing.receivedUnlessAccepted(driver.region, {
        offerId: offer.offerId,
        leaseToken: offer.leaseToken,
        driverId: driver.driverId,
      });
      if (refused !== null && refused !== 'busy')
        socket.emit('offer:withdrawn', { offerId: offer.offerId, reason: refused });
    } catch (error) {
      if (error instanceof TakenBackError) return;
      // The records don't know of the receipt: the offer is pushed again, or lapses.
      push.isOver = false;
      if (socket.connected && performance.now() - startedAtMs < terms.untilMs) send('again');
    }
  };
  send('first');
}
